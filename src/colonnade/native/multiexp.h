// Products of powers along the rows of a sparse integer matrix: X @ ciphertexts.
#pragma once

#include "residues.h"

namespace colonnade {

constexpr std::size_t kDefaultTableBytes = std::size_t{64} << 20;

// A matrix in compressed sparse rows: row i has the entries indptr[i] to indptr[i + 1].
struct CsrMatrix {
  std::vector<std::int64_t> indptr, indices, values;

  std::size_t rows() const { return indptr.size() - 1; }
};

// result[i * groups + g] = product over the entries e of row i of
// bases[indices[e] * groups + g]^values[e].
//
// Interleaved windows (Straus): a row shares its squarings. Tables of odd powers are made once for
// each base, as wide as that base's own entries pay for, in at most table_bytes. A row with
// negative values is a quotient of two products, and all quotients share one inversion.
Residues multiexp_csr_vartime(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
                              std::size_t table_bytes, int threads);

}  // namespace colonnade
