#include <algorithm>
#include <stdexcept>
#include <string>

#include "inverse.h"
#include "parallel.h"
#include "residues.h"

namespace colonnade {
namespace {

// products[i] = a[begin] * ... * a[i]
void multiply_up(Multiplier& arithmetic, Residues& products, const Residues& a, std::size_t begin,
                 std::size_t end) {
  copy(products.row(begin), a.row(begin), arithmetic.limbs());
  for (std::size_t i = begin + 1; i < end; ++i) {
    arithmetic.multiply(products.row(i), products.row(i - 1), a.row(i));
  }
}

// Turns the products of multiply_up into inverses; `inverse` is that of the last product and is
// used up.
void divide_down(Multiplier& arithmetic, Residues& products, const Residues& a, Limb* inverse,
                 std::size_t begin, std::size_t end) {
  for (std::size_t i = end - 1; i > begin; --i) {
    arithmetic.multiply(products.row(i), products.row(i - 1), inverse);
    arithmetic.multiply(inverse, inverse, a.row(i));
  }
  copy(products.row(begin), inverse, arithmetic.limbs());
}

bool invert_one(Multiplier& arithmetic, const Modulus& modulus, Limb* r, const Limb* a) {
  arithmetic.leave(r, a);
  if (!invert_vartime(r, r, modulus.n(), modulus.limbs())) return false;
  arithmetic.enter(r, r);
  return true;
}

}  // namespace

std::optional<Residues> try_invert(const Residues& a, int threads) {
  const ModulusPointer& modulus = a.modulus();
  Residues result(modulus, a.count());
  if (a.count() == 0) return result;

  // Runs of numbers, one for a thread; the products of whole runs are inverted together.
  const std::size_t runs = std::min<std::size_t>(threads > 1 ? threads : 1, a.count());
  const auto start = [&](std::size_t run) { return run * a.count() / runs; };
  parallel_for(runs, threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*modulus);
    for (std::size_t k = begin; k < end; ++k) {
      multiply_up(arithmetic, result, a, start(k), start(k + 1));
    }
  });

  Residues whole(modulus, runs), inverses(modulus, runs);
  Multiplier arithmetic(*modulus);
  for (std::size_t k = 0; k < runs; ++k) {
    copy(whole.row(k), result.row(start(k + 1) - 1), modulus->limbs());
  }
  multiply_up(arithmetic, inverses, whole, 0, runs);
  LimbVector inverse(modulus->limbs());
  if (!invert_one(arithmetic, *modulus, inverse.data(), inverses.row(runs - 1))) {
    return std::nullopt;
  }
  divide_down(arithmetic, inverses, whole, inverse.data(), 0, runs);

  parallel_for(runs, threads, [&](std::size_t begin, std::size_t end) {
    Multiplier own(*modulus);
    for (std::size_t k = begin; k < end; ++k) {
      divide_down(own, result, a, inverses.row(k), start(k), start(k + 1));
    }
  });
  return result;
}

Residues invert(const Residues& a, int threads) {
  std::optional<Residues> result = try_invert(a, threads);
  if (result) return *std::move(result);
  Multiplier arithmetic(*a.modulus());
  LimbVector ignored(a.modulus()->limbs());
  std::size_t i = 0;
  while (i + 1 < a.count() && invert_one(arithmetic, *a.modulus(), ignored.data(), a.row(i))) ++i;
  throw std::invalid_argument("number " + std::to_string(i) + " has no inverse modulo n");
}

}  // namespace colonnade
