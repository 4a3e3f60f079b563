#include "multiexp.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "products.h"
#include "window_tables.h"

namespace colonnade {
namespace {

// Multiplications planned before they are done: enough to fill lanes and threads.
constexpr std::size_t kStepsAtATime = std::size_t{1} << 14;

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
      if (starts) sums_.push_back({step->position, steps_.size(), nullptr});
      steps_.push_back(tables.odd_power(step->column, group, step->power));
    }
    results_.push_back({sums_.size(), result});
  }

  void finish(int threads) {
    std::size_t products_needed = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) products_needed += size(i) > 1;
    Residues products(modulus_, products_needed);
    ProductLists lists(modulus_);
    std::size_t next = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const std::size_t begin = sums_[i].first_step, end = begin + size(i);
      sums_[i].row = size(i) > 1 ? products.row(next) : steps_[begin];
      if (size(i) == 1) continue;
      for (std::size_t step = begin; step < end; ++step) lists.append(steps_[step]);
      lists.finish(products.row(next++));
    }
    std::move(lists).multiply(threads);
    for_each_group(*modulus_, results_.size(), threads,
                   [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                     join(arithmetic, first, count);
                   });
    steps_.clear();
    sums_.clear();
    results_.clear();
  }

 private:
  struct Sum {
    std::uint8_t position;
    std::size_t first_step;
    const Limb* row;  // once it is known
  };
  struct Result {
    std::size_t end;  // of its sums, which begin where the result's before end
    Limb* row;
  };

  std::size_t size(std::size_t i) const {
    return (i + 1 < sums_.size() ? sums_[i + 1].first_step : steps_.size()) - sums_[i].first_step;
  }

  // Squares and multiplies from the highest position of any lane down, by one where a lane has
  // nothing at a position.
  void join(Multiplier& arithmetic, std::size_t first, std::size_t count) const {
    std::size_t next[kMaxLanes], end[kMaxLanes], top = 0;
    Limb* to[kMaxLanes];
    for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
      const std::size_t i = first + lane;
      const bool used = lane < count;
      next[lane] = used && i > 0 ? results_[i - 1].end : 0;
      end[lane] = used ? results_[i].end : 0;
      to[lane] = used ? results_[i].row : arithmetic.temporary(Multiplier::kTemporaries);
      if (next[lane] < end[lane]) top = std::max<std::size_t>(top, sums_[next[lane]].position);
    }
    Product product(arithmetic, arithmetic.temporary(0));
    for (std::size_t position = top + 1; position-- > 0;) {
      product.square(1);
      const Limb* rows[kMaxLanes];
      bool any = false;
      for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
        const bool has = next[lane] < end[lane] && sums_[next[lane]].position == position;
        rows[lane] = has ? sums_[next[lane]++].row : modulus_->one();
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
    const std::vector<Step> steps = plan_row(matrix, tables, row, has_negative);
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
