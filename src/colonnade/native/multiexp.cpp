#include "multiexp.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "exponent.h"
#include "products.h"

namespace colonnade {
namespace {

constexpr std::size_t kWidestWindow = 8;
// Multiplications planned before they are done: enough to fill lanes and threads.
constexpr std::size_t kStepsAtATime = std::size_t{1} << 15;

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

  // Bases of like windows side by side: the lanes of a group go as far as the widest of them.
  void build(int threads) {
    std::vector<std::size_t> columns;
    for (std::size_t column = 0; column < window_.size(); ++column) {
      if (window_[column] > 1) columns.push_back(column);
    }
    std::stable_sort(columns.begin(), columns.end(),
                     [&](std::size_t a, std::size_t b) { return window_[a] > window_[b]; });
    for_each_group(
        *bases_.modulus(), columns.size() * groups_, threads,
        [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
          const std::size_t powers = std::size_t{1} << (window_[columns[first / groups_]] - 1);
          const Limb* rows[kMaxLanes];
          for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
            const std::size_t item = first + (lane < count ? lane : 0);
            rows[lane] = bases_.row(columns[item / groups_] * groups_ + item % groups_);
          }
          arithmetic.load(arithmetic.temporary(0), rows);
          LimbVector table(powers * arithmetic.group_limbs());
          odd_powers(arithmetic, table.data(), arithmetic.temporary(0), powers);
          for (std::size_t i = 0; i < powers; ++i) {
            Limb* to[kMaxLanes];
            for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
              const std::size_t item = first + lane;
              const bool has = lane < count && i >> (window_[columns[item / groups_]] - 1) == 0;
              to[lane] = has ? entry(columns[item / groups_], item % groups_, i)
                             : arithmetic.temporary(Multiplier::kTemporaries);
            }
            arithmetic.store(to, table.data() + i * arithmetic.group_limbs());
          }
        });
  }

  Limb* entry(std::size_t column, std::size_t group, std::size_t i) {
    return table_.data() + start_[column] +
           ((group << (window_[column] - 1)) + i) * bases_.modulus()->limbs();
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

// The steps of a row, those with inverses last, each kind from the highest position down.
std::vector<Step> plan(const CsrMatrix& matrix, const WindowTables& tables, std::size_t row,
                       bool has_negative) {
  std::vector<Step> steps;
  for (auto e = static_cast<std::size_t>(matrix.indptr[row]);
       e < static_cast<std::size_t>(matrix.indptr[row + 1]); ++e) {
    const std::int64_t value = matrix.values[e];
    const auto column = static_cast<std::size_t>(matrix.indices[e]);
    if (has_negative) {
      push_signed(steps, column, magnitude(value), value < 0, tables.window(column));
    } else {
      push_unsigned(steps, column, magnitude(value), tables.window(column));
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.inverse != b.inverse ? b.inverse : a.position > b.position;
  });
  return steps;
}

// Products over positions p of sum_p^(2^p), for many results at a time. A position's factors are
// multiplied first, as one list among many, and the lanes then square and multiply together: a
// result costs as many multiplications as it has steps, whatever its lanes' neighbours have.
class PositionSums {
 public:
  explicit PositionSums(const ModulusPointer& modulus) : modulus_(modulus) {}

  std::size_t steps() const { return steps_.size(); }

  // The steps [begin, end), from the highest position down, are the result's.
  void add(const Step* begin, const Step* end, const WindowTables& tables, std::size_t group,
           Limb* result) {
    for (const Step* step = begin; step != end; ++step) {
      const bool starts = step == begin || step->position != sums_.back().position;
      if (starts) sums_.push_back({step->position, steps_.size()});
      steps_.push_back(tables.odd_power(step->column, group, step->power));
    }
    results_.push_back({sums_.size(), result});
  }

  void finish(int threads) {
    Residues products(modulus_, sums_.size());
    ProductLists lists(modulus_);
    std::vector<const Limb*> sums(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const std::size_t end = i + 1 < sums_.size() ? sums_[i + 1].first_step : steps_.size();
      sums[i] = products.row(i);
      for (std::size_t step = sums_[i].first_step; step < end; ++step) lists.append(steps_[step]);
      lists.finish(products.row(i));
    }
    std::move(lists).multiply(threads);
    for_each_group(*modulus_, results_.size(), threads,
                   [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                     join(arithmetic, products, first, count);
                   });
    steps_.clear(), sums_.clear(), results_.clear();
  }

 private:
  struct Sum {
    std::uint8_t position;
    std::size_t first_step;
  };
  struct Result {
    std::size_t end;  // of its sums
    Limb* row;
  };

  void join(Multiplier& arithmetic, const Residues& products, std::size_t first,
            std::size_t count) const {
    std::size_t next[kMaxLanes], top = 0;
    Limb* to[kMaxLanes];
    for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
      const std::size_t i = first + lane;
      next[lane] = lane >= count ? sums_.size() : i == 0 ? 0 : results_[i - 1].end;
      to[lane] = lane < count ? results_[i].row : arithmetic.temporary(Multiplier::kTemporaries);
      if (lane < count && next[lane] < results_[i].end) {
        top = std::max<std::size_t>(top, sums_[next[lane]].position);
      }
    }
    Product product(arithmetic, arithmetic.temporary(0));
    for (std::size_t position = top + 1; position-- > 0;) {
      product.square(1);
      const Limb* rows[kMaxLanes];
      bool any = false;
      for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
        const bool has = lane < count && next[lane] < results_[first + lane].end &&
                         sums_[next[lane]].position == position;
        rows[lane] = has ? products.row(next[lane]++) : modulus_->one();
        any |= has;
      }
      if (!any) continue;
      arithmetic.load(arithmetic.temporary(1), rows);
      product.multiply(arithmetic.temporary(1));
    }
    product.finish();
    arithmetic.store(to, arithmetic.temporary(0));
  }

  ModulusPointer modulus_;
  std::vector<const Limb*> steps_;
  std::vector<Sum> sums_;
  std::vector<Result> results_;
};

bool any_negative(const CsrMatrix& matrix, std::size_t row) {
  return std::any_of(matrix.values.data() + matrix.indptr[row],
                     matrix.values.data() + matrix.indptr[row + 1],
                     [](std::int64_t value) { return value < 0; });
}

}  // namespace

Residues multiexp_csr_vartime(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
                              std::size_t table_bytes, int threads) {
  check(matrix, bases.count(), groups);
  const ModulusPointer& modulus = bases.modulus();
  Residues result(modulus, checked_product(matrix.rows(), groups));
  const WindowTables tables(bases, matrix, groups, table_bytes, threads);

  std::vector<std::size_t> rows_with_negative;
  for (std::size_t row = 0; row < matrix.rows(); ++row) {
    if (any_negative(matrix, row)) rows_with_negative.push_back(row);
  }
  Residues denominators(modulus, checked_product(rows_with_negative.size(), groups));
  PositionSums sums(modulus);
  std::size_t denominator = 0;
  for (std::size_t row = 0; row < matrix.rows(); ++row) {
    const bool has_negative = denominator < rows_with_negative.size() &&
                              rows_with_negative[denominator] == row;
    const std::vector<Step> steps = plan(matrix, tables, row, has_negative);
    const Step *begin = steps.data(), *end = begin + steps.size();
    const Step* inverses = std::find_if(begin, end, [](const Step& step) { return step.inverse; });
    for (std::size_t group = 0; group < groups; ++group) {
      sums.add(begin, inverses, tables, group, result.row(row * groups + group));
      if (has_negative) {
        sums.add(inverses, end, tables, group, denominators.row(denominator * groups + group));
      }
      if (sums.steps() >= kStepsAtATime) sums.finish(threads);
    }
    denominator += has_negative;
  }
  sums.finish(threads);

  const std::optional<Residues> quotients = try_invert(denominators, threads);
  if (!quotients) {
    throw std::invalid_argument("got a negative power of a base that has no inverse modulo n");
  }
  ProductLists products(modulus);
  for (std::size_t i = 0; i < denominators.count(); ++i) {
    Limb* numerator = result.row(rows_with_negative[i / groups] * groups + i % groups);
    products.append(numerator);
    products.append(quotients->row(i));
    products.finish(numerator);
  }
  std::move(products).multiply(threads);
  return result;
}

}  // namespace colonnade
