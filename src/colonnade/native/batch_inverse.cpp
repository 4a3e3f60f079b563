#include <algorithm>
#include <stdexcept>
#include <string>

#include "inverse.h"
#include "residues.h"

namespace colonnade {
namespace {

// A batch in runs of nearly equal length: numbers start(k) to start(k + 1) of it. A group has
// number i of as many runs as there are lanes, and ones where a run has ended.
struct Runs {
  std::size_t runs, numbers;

  std::size_t start(std::size_t run) const { return run * numbers / runs; }
  std::size_t longest() const { return (numbers + runs - 1) / runs; }

  // The rows of number i of runs `first` to `first + count`; `other` where there is none.
  template <class Row, class Batch>
  void rows(Row** rows, Batch& batch, std::size_t first, std::size_t count, std::size_t i,
            Row* other) const {
    for (std::size_t lane = 0; lane < kMaxLanes; ++lane) {
      const std::size_t run = first + lane;
      const bool has = lane < count && start(run) + i < start(run + 1);
      rows[lane] = has ? batch.row(start(run) + i) : other;
    }
  }
  void load(Multiplier& arithmetic, Limb* group, const Residues& batch, std::size_t first,
            std::size_t count, std::size_t i) const {
    const Limb* from[kMaxLanes];
    rows(from, batch, first, count, i, batch.modulus()->one());
    arithmetic.load(group, from);
  }
  void store(Multiplier& arithmetic, Residues& batch, const Limb* group, std::size_t first,
             std::size_t count, std::size_t i) const {
    Limb* to[kMaxLanes];
    rows(to, batch, first, count, i, arithmetic.temporary(Multiplier::kTemporaries));
    arithmetic.store(to, group);
  }
};

// products[i] = a[start of the run] * ... * a[i], and the product of each whole run.
void multiply_up(const Residues& a, const Runs& runs, Residues& products, Residues& whole,
                 int threads) {
  for_each_group(*a.modulus(), runs.runs, threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb *product = arithmetic.temporary(0), *factor = arithmetic.temporary(1);
                   for (std::size_t i = 0; i < runs.longest(); ++i) {
                     runs.load(arithmetic, i == 0 ? product : factor, a, first, count, i);
                     if (i > 0) arithmetic.multiply(product, product, factor);
                     runs.store(arithmetic, products, product, first, count, i);
                   }
                   whole.store(arithmetic, first, product, count);
                 });
}

// Turns the products of multiply_up into inverses, from the inverses of the whole runs.
void divide_down(const Residues& a, const Runs& runs, Residues& products, const Residues& inverses,
                 int threads) {
  for_each_group(*a.modulus(), runs.runs, threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb *inverse = arithmetic.temporary(0), *product = arithmetic.temporary(1);
                   Limb* factor = arithmetic.temporary(2);
                   inverses.load(arithmetic, inverse, first, count);
                   for (std::size_t i = runs.longest(); i-- > 1;) {
                     runs.load(arithmetic, product, products, first, count, i - 1);
                     arithmetic.multiply(product, product, inverse);
                     runs.store(arithmetic, products, product, first, count, i);
                     runs.load(arithmetic, factor, a, first, count, i);
                     arithmetic.multiply(inverse, inverse, factor);
                   }
                   runs.store(arithmetic, products, inverse, first, count, 0);
                 });
}

// For kernels of one lane, whose rows are plain words.
bool invert_one(const Modulus& modulus, Limb* r, const Limb* a) {
  Multiplier arithmetic(modulus);
  arithmetic.leave(r, a);
  if (!invert_vartime(r, r, modulus.n_words(), modulus.words())) return false;
  arithmetic.enter(r, r);
  return true;
}

}  // namespace

std::optional<Residues> try_invert(const Residues& a, int threads) {
  const ModulusPointer& modulus = a.modulus();
  Residues result(modulus, a.count());
  if (a.count() == 0) return result;
  const std::size_t workers = threads > 1 ? static_cast<std::size_t>(threads) : 1;
  const Runs runs{std::min(workers * modulus->kernel().lanes, a.count()), a.count()};
  Residues whole(modulus, runs.runs);
  multiply_up(a, runs, result, whole, threads);

  // The few products of whole runs are one run, which lanes do not speed up.
  std::optional<Residues> inverses;
  if (modulus->one_lane()) {
    inverses = try_invert(whole.with(modulus->one_lane(), 1), 1);
    if (inverses) inverses = inverses->with(modulus, 1);
  } else if (runs.runs > 1) {
    inverses = try_invert(whole, 1);
  } else if (invert_one(*modulus, whole.row(0), whole.row(0))) {
    inverses = std::move(whole);
  }
  if (!inverses) return std::nullopt;
  divide_down(a, runs, result, *inverses, threads);
  return result;
}

Residues invert(const Residues& a, int threads) {
  std::optional<Residues> result = try_invert(a, threads);
  if (result) return *std::move(result);
  const ModulusPointer& one_lane = a.modulus()->one_lane();
  Residues numbers = one_lane ? a.with(one_lane, 1) : a;
  std::size_t i = 0;
  while (i + 1 < numbers.count() &&
         invert_one(*numbers.modulus(), numbers.row(i), numbers.row(i))) {
    ++i;
  }
  throw std::invalid_argument("number " + std::to_string(i) + " has no inverse modulo n");
}

}  // namespace colonnade
