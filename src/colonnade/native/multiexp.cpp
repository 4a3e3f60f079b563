#include "multiexp.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "exponent.h"
#include "parallel.h"

namespace colonnade {
namespace {

constexpr std::size_t kWidestWindow = 8;
// Shorter pieces of a row would lose more to their own squarings than threads give.
constexpr std::size_t kShortestPiece = 8;

std::uint64_t magnitude(std::int64_t value) {
  const std::uint64_t bits = static_cast<std::uint64_t>(value);
  return value < 0 ? 0 - bits : bits;
}

void check(const CsrMatrix& matrix, std::size_t bases, std::size_t groups) {
  if (groups == 0 || bases % groups != 0) {
    throw std::invalid_argument("got " + std::to_string(bases) + " bases in groups of " +
                                std::to_string(groups) + "; want a whole number of groups");
  }
  if (matrix.indptr.empty() || matrix.indptr.front() != 0 ||
      matrix.indices.size() != matrix.values.size() ||
      matrix.indptr.back() != static_cast<std::int64_t>(matrix.indices.size()) ||
      !std::is_sorted(matrix.indptr.begin(), matrix.indptr.end())) {
    throw std::invalid_argument(
        "got a malformed CSR matrix; want indptr rising from 0 to the length of both indices and "
        "values");
  }
  for (const std::int64_t index : matrix.indices) {
    if (static_cast<std::uint64_t>(index) >= bases / groups) {
      throw std::invalid_argument("got column " + std::to_string(index) + "; want 0 to " +
                                  std::to_string(bases / groups) + " exclusive");
    }
  }
}

// The odd powers of every base that the matrix raises to more than one.
class WindowTables {
 public:
  WindowTables(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
               std::size_t most_bytes, int threads)
      : bases_(bases),
        groups_(groups),
        window_(bases.count() / groups, 1),
        start_(window_.size(), 0) {
    choose_windows(matrix, most_bytes / kLimbBytes);
    build(threads);
  }

  std::size_t window(std::size_t column) const { return window_[column]; }
  const Limb* odd_power(std::size_t column, std::size_t group, std::size_t power) const {
    if (power == 1) return bases_.row(column * groups_ + group);
    return table_.data() + start_[column] +
           ((group << (window_[column] - 1)) + power / 2) * bases_.modulus()->limbs();
  }

 private:
  std::size_t limbs(std::size_t window) const {  // a width of 1 needs the base alone
    return window == 1 ? 0 : (groups_ << (window - 1)) * bases_.modulus()->limbs();
  }

  void choose_windows(const CsrMatrix& matrix, std::size_t most_limbs) {
    std::vector<std::size_t> bits(window_.size(), 0);
    for (std::size_t e = 0; e < matrix.values.size(); ++e) {
      const std::uint64_t value = magnitude(matrix.values[e]);
      if (value > 1) bits[static_cast<std::size_t>(matrix.indices[e])] += bit_length(value);
    }
    // Within the memory bound: the widest windows give way first. A width of 1 takes none.
    for (std::size_t widest = kWidestWindow;; --widest) {
      std::size_t total = 0;
      for (std::size_t column = 0; column < window_.size(); ++column) {
        window_[column] = cheapest_window(widest, [&](std::size_t w) {
          const std::size_t table = w == 1 ? 0 : std::size_t{1} << (w - 1);
          return table + bits[column] / (w + 1);
        });
        start_[column] = total;
        total += limbs(window_[column]);
      }
      if (total <= most_limbs) {
        table_.resize(total);
        return;
      }
    }
  }

  void build(int threads) {
    std::vector<std::size_t> columns;
    for (std::size_t column = 0; column < window_.size(); ++column) {
      if (window_[column] > 1) columns.push_back(column);
    }
    parallel_for(columns.size() * groups_, threads, [&](std::size_t begin, std::size_t end) {
      Multiplier arithmetic(*bases_.modulus());
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t column = columns[i / groups_], group = i % groups_;
        const std::size_t powers = std::size_t{1} << (window_[column] - 1);
        odd_powers(arithmetic,
                   table_.data() + start_[column] + group * powers * arithmetic.limbs(),
                   bases_.row(column * groups_ + group), powers);
      }
    });
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

// A run of entries of one row. Long rows are cut where there are fewer rows than threads.
struct Piece {
  std::size_t row, begin, end;
  bool has_negative;
};

// Windows of an unsigned value, from its low end: odd powers below 2^window.
void push_unsigned(std::vector<Step>& steps, std::size_t column, std::uint64_t value,
                   std::size_t window) {
  for (unsigned position = 0; value != 0;) {
    const unsigned zeros = static_cast<unsigned>(__builtin_ctzll(value));
    value >>= zeros;
    position += zeros;
    const std::uint64_t power = value & ((std::uint64_t{1} << window) - 1);
    value -= power;
    steps.push_back({column, static_cast<std::uint16_t>(power),
                     static_cast<std::uint8_t>(position), false});
  }
}

// Signed digits (wNAF), one bit wider over the same odd powers: fewer steps. `value` is at most
// 2^63, so that adding a digit does not wrap.
void push_signed(std::vector<Step>& steps, std::size_t column, std::uint64_t value,
                 bool negative, std::size_t window) {
  for (unsigned position = 0; value != 0;) {
    const unsigned zeros = static_cast<unsigned>(__builtin_ctzll(value));
    value >>= zeros;
    position += zeros;
    const std::uint64_t range = std::uint64_t{1} << (window + 1);
    std::uint64_t power = value & (range - 1);
    const bool from_above = power > range / 2;
    if (from_above) {
      power = range - power;
      value += power;
    } else {
      value -= power;
    }
    steps.push_back({column, static_cast<std::uint16_t>(power),
                     static_cast<std::uint8_t>(position), negative != from_above});
  }
}

// The steps of a piece, highest position first.
std::vector<Step> plan(const CsrMatrix& matrix, const WindowTables& tables, const Piece& piece) {
  std::vector<Step> steps;
  for (std::size_t e = piece.begin; e < piece.end; ++e) {
    const std::int64_t value = matrix.values[e];
    const auto column = static_cast<std::size_t>(matrix.indices[e]);
    if (piece.has_negative) {
      push_signed(steps, column, magnitude(value), value < 0, tables.window(column));
    } else {
      push_unsigned(steps, column, magnitude(value), tables.window(column));
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.position > b.position; });
  return steps;
}

// numerator / denominator becomes the product of the steps; denominator may be null where no step
// is an inverse.
void run(const std::vector<Step>& steps, const WindowTables& tables, std::size_t group,
         Multiplier& arithmetic, Limb* numerator, Limb* denominator) {
  Product positive(arithmetic, numerator), negative(arithmetic, denominator);
  std::size_t position = steps.empty() ? 0 : steps.front().position;
  for (const Step& step : steps) {
    positive.square(position - step.position);
    negative.square(position - step.position);
    position = step.position;
    (step.inverse ? negative : positive)
        .multiply(tables.odd_power(step.column, group, step.power));
  }
  positive.square(position);
  negative.square(position);
  positive.finish();
  if (denominator != nullptr) negative.finish();
}

std::vector<Piece> cut(const CsrMatrix& matrix, std::size_t groups, int threads) {
  const std::size_t outputs = checked_product(matrix.rows(), groups);
  const std::size_t workers = threads > 1 ? static_cast<std::size_t>(threads) : 1;
  const std::size_t wanted = outputs == 0 ? 1 : (workers + outputs - 1) / outputs;
  std::vector<Piece> pieces;
  for (std::size_t row = 0; row < matrix.rows(); ++row) {
    const auto begin = static_cast<std::size_t>(matrix.indptr[row]);
    const std::size_t length = static_cast<std::size_t>(matrix.indptr[row + 1]) - begin;
    const std::size_t parts = std::max<std::size_t>(1, std::min(wanted, length / kShortestPiece));
    for (std::size_t part = 0; part < parts; ++part) {
      Piece piece{row, begin + part * length / parts, begin + (part + 1) * length / parts, false};
      piece.has_negative =
          std::any_of(matrix.values.data() + piece.begin, matrix.values.data() + piece.end,
                      [](std::int64_t value) { return value < 0; });
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace

Residues multiexp_csr_vartime(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
                              std::size_t table_bytes, int threads) {
  check(matrix, bases.count(), groups);
  const ModulusPointer& modulus = bases.modulus();
  const WindowTables tables(bases, matrix, groups, table_bytes, threads);
  const std::vector<Piece> pieces = cut(matrix, groups, threads);

  std::vector<std::size_t> first_piece(matrix.rows() + 1, 0), denominator_of(pieces.size());
  std::size_t with_negative = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    first_piece[pieces[p].row + 1] = p + 1;
    denominator_of[p] = with_negative;
    with_negative += pieces[p].has_negative;
  }
  Residues numerators(modulus, checked_product(pieces.size(), groups));
  Residues denominators(modulus, checked_product(with_negative, groups));
  parallel_for(numerators.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*modulus);
    std::vector<Step> steps;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t p = i / groups, group = i % groups;
      if (i == begin || group == 0) steps = plan(matrix, tables, pieces[p]);
      Limb* denominator =
          pieces[p].has_negative ? denominators.row(denominator_of[p] * groups + group) : nullptr;
      run(steps, tables, group, arithmetic, numerators.row(i), denominator);
    }
  });
  const std::optional<Residues> inverses = try_invert(denominators, threads);
  if (!inverses) {
    throw std::invalid_argument("got a negative power of a base that has no inverse modulo n");
  }

  Residues result(modulus, checked_product(matrix.rows(), groups));
  parallel_for(result.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*modulus);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t row = i / groups, group = i % groups;
      Product product(arithmetic, result.row(i));
      for (std::size_t p = first_piece[row]; p < first_piece[row + 1]; ++p) {
        product.multiply(numerators.row(p * groups + group));
        if (pieces[p].has_negative) {
          product.multiply(inverses->row(denominator_of[p] * groups + group));
        }
      }
    }
  });
  return result;
}

}  // namespace colonnade
