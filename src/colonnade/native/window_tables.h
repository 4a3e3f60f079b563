// The digits of a matrix's entries, and the powers of the bases that the digits ask for.
#pragma once

#include <vector>

#include "multiexp.h"

namespace colonnade {

// The odd powers of every base that the matrix raises to more than one.
class WindowTables {
 public:
  WindowTables(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
               std::size_t most_bytes, int threads);

  std::size_t window(std::size_t column) const { return window_[column]; }
  const Limb* odd_power(std::size_t column, std::size_t group, std::size_t power) const {
    return power == 1 ? bases_.row(column * groups_ + group)
                      : table_.data() + place(column, group, power / 2);
  }

 private:
  void choose_windows(const CsrMatrix& matrix, std::size_t most_limbs);
  void build(int threads);
  // Where the table has the odd power 2 * i + 1.
  std::size_t place(std::size_t column, std::size_t group, std::size_t i) const {
    return start_[column] + ((group << (window_[column] - 1)) + i) * bases_.modulus()->limbs();
  }

  const Residues& bases_;
  std::size_t groups_;
  std::vector<std::size_t> window_, start_;
  LimbVector table_;
};

// One multiplication to come: by column^(power * 2^position), or by its inverse.
struct Step {
  std::size_t column;
  std::uint16_t power;  // odd
  std::uint8_t position;
  bool inverse;
};

// The steps of a row, those with inverses last, each kind from the highest position down. Signed
// digits where the row has negative entries anyway.
std::vector<Step> plan_row(const CsrMatrix& matrix, const WindowTables& tables, std::size_t row,
                           bool has_negative);

}  // namespace colonnade
