"""Batched arithmetic modulo large odd numbers, compiled.

A `Modulus` turns little-endian bytes into `Residues`, an opaque batch of numbers that stay in
Montgomery form until `to_bytes`; the functions here take and return such batches. Everything
releases the interpreter lock, splits over `threads`, and gives the same bytes whatever the number
of threads and whichever kernel the processor allows. Functions named `..._vartime` let exponents
or digits show in their timing and memory accesses; so does `invert` for the numbers it is given.

Kernels, fastest first: `ifma` (AVX-512 IFMA, eight numbers at a time), `avx2` (AVX2 and FMA, four),
`adx` (BMI2 and ADX, one) and `portable`. The fastest that the processor runs is used, unless the
environment variable COLONNADE_KERNEL, read at the first use, names another. `ifma-emulated` is the
source of `ifma` over plain integers: slow, there to be tested, used only by name. Kernels that take
several numbers at a time are at their best where batches fill lanes times threads.
"""

try:
    from colonnade.native._kernels import (
        FixedBaseTable,
        Modulus,
        ProductTable,
        Residues,
        cpu_features,
        horner_pack,
        invert,
        mul,
        multiexp_csr_vartime,
        pow_secret,
        pow_vartime,
        selected_kernel,
        square_times,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        "got no compiled kernels (colonnade.native._kernels); want the extension module built for "
        "this Python; build it with 'pip install .' in the source folder (needs a C++17 compiler)"
    ) from error

__all__ = [
    "FixedBaseTable",
    "Modulus",
    "ProductTable",
    "Residues",
    "cpu_features",
    "horner_pack",
    "invert",
    "mul",
    "multiexp_csr_vartime",
    "pow_secret",
    "pow_vartime",
    "selected_kernel",
    "square_times",
]
