"""Batched arithmetic modulo large odd numbers, compiled.

A `Modulus` turns little-endian bytes into `Residues`, an opaque batch of numbers that stay in
Montgomery form until `to_bytes`; the functions here take and return such batches. Everything
releases the interpreter lock, splits over `threads`, and gives the same bytes whatever the number
of threads and whichever kernel the processor allows. Functions named `..._vartime` let exponents
or digits show in their timing and memory accesses; so does `invert` for the numbers it is given.
The environment variable COLONNADE_KERNEL, read at the first use, names a kernel to use in place of
the fastest.
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
