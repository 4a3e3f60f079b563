// Montgomery multiplication and squaring of several numbers at once, one in each lane of a vector.
//
// Numbers are groups: limb i of every lane, side by side, in limbs of kLaneLimbBits bits. Sums are
// 64 bits wide, so that a column takes all its products before one pass carries. Rows are taken
// kBlock at a time: their accumulators slide over the columns in registers. The quotients of a
// block are found before the products of the next block are added, which hides how long a
// quotient takes. Values stay below 2n for R > 4n: no subtraction, and no branch and no address
// that depends on a value.
//
// A vector type V supplies
//   kLanes, kBlock               lanes, and rows that fit the registers
//   Sum, Factor                  64-bit sums; limbs in the form its multiplier takes
//   load, store, gather          sums in memory; limb i of one row a lane
//   zero, broadcast, add, double_of, low_limb, carry_of, bit_and, bit_or, equal_mask
//   factor_of                    a limb (a sum below 2^52) as a factor
//   load_factor, store_factor    factors kept in memory
//   add_low, add_high, add_product           52 bits of a product each
//   quotient_of                  the low limb of a column times a factor, low 52 bits
//   kLowBias, kHighBias          what add_low and add_high leave in a sum besides (the columns
//                                start at minus the sum of all that they will get)
//   prepare_factors              a group as factors: the group itself, or a copy in scratch
//   Scope                        held while any of these runs
// A column gets at most 4 * limbs halves of products, below 2^62 for the largest modulus.
//
// V is local to its file: functions built with that file's instruction set must not be merged
// with another file's.
#pragma once

#include "kernel.h"

namespace colonnade {

constexpr std::size_t kLaneLimbBits = 52;
constexpr Limb kLaneLimbMask = (Limb{1} << kLaneLimbBits) - 1;

#define COLONNADE_INLINE inline __attribute__((always_inline))
// Defined as nothing where compiling quickly counts for more.
#if defined(COLONNADE_UNROLL)
#elif defined(__clang__)
#define COLONNADE_UNROLL _Pragma("unroll")
#else
#define COLONNADE_UNROLL _Pragma("GCC unroll 32")
#endif

template <class V>
struct LaneArithmetic {
  using Sum = typename V::Sum;
  using Factor = typename V::Factor;
  static constexpr std::size_t kLanes = V::kLanes, kBlock = V::kBlock;

  static COLONNADE_INLINE Sum sum(const Limb* t, std::size_t i) { return V::load(t + i * kLanes); }
  static COLONNADE_INLINE void set(Limb* t, std::size_t i, Sum x) { V::store(t + i * kLanes, x); }
  static COLONNADE_INLINE Factor factor(const Limb* a, std::size_t i) {
    return V::load_factor(a + i * kLanes);
  }
  static COLONNADE_INLINE void set_factor(Limb* a, std::size_t i, Factor x) {
    V::store_factor(a + i * kLanes, x);
  }

  // t += a * (kBlock limbs of b), for `limbs` limbs of a.
  static COLONNADE_INLINE void add_rows(Limb* t, const Limb* a, const Limb* b, std::size_t limbs) {
    Factor row[kBlock];
    Sum window[2 * kBlock];
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) row[i] = factor(b, i);
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) window[i] = sum(t, i);
    for (std::size_t j = 0; j < limbs; j += kBlock) {
      COLONNADE_UNROLL
      for (std::size_t step = 0; step < kBlock; ++step) {
        const Factor x = factor(a, j + step);
        window[step + kBlock] = sum(t, j + step + kBlock);
        COLONNADE_UNROLL
        for (std::size_t i = 0; i < kBlock; ++i) {
          V::add_product(window[step + i], window[step + i + 1], x, row[i]);
        }
        set(t, j + step, window[step]);
      }
      COLONNADE_UNROLL
      for (std::size_t i = 0; i < kBlock; ++i) window[i] = window[kBlock + i];
    }
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) set(t, limbs + i, window[i]);
  }

  // The quotients q that make kBlock columns of t + q * n zero. Of q * n it adds what those
  // columns need and carries the rest of them into the next.
  static COLONNADE_INLINE void find_quotients(Limb* q, Limb* t, const Limb* n,
                                              Factor minus_n_inverse) {
    Sum window[kBlock];
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) window[i] = sum(t, i);
    COLONNADE_UNROLL
    for (std::size_t k = 0; k < kBlock; ++k) {
      const Factor quotient = V::quotient_of(window[k], minus_n_inverse);
      set_factor(q, k, quotient);
      COLONNADE_UNROLL
      for (std::size_t i = k; i + 1 < kBlock; ++i) {
        V::add_product(window[i], window[i + 1], quotient, factor(n, i - k));
      }
      V::add_low(window[kBlock - 1], quotient, factor(n, kBlock - 1 - k));
      const Sum carry = V::carry_of(window[k]);
      if (k + 1 < kBlock) {
        window[k + 1] = V::add(window[k + 1], carry);
      } else {
        set(t, kBlock, V::add(sum(t, kBlock), carry));
      }
    }
  }

  // The rest of t += q * n: the columns from kBlock on.
  static COLONNADE_INLINE void add_quotients(Limb* t, const Limb* n, const Limb* q,
                                             std::size_t limbs) {
    Sum window[kBlock];
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) window[i] = sum(t, kBlock + i);
    COLONNADE_UNROLL
    for (std::size_t k = 0; k < kBlock; ++k) {
      const Factor quotient = factor(q, k);
      V::add_high(window[0], quotient, factor(n, kBlock - 1 - k));
      COLONNADE_UNROLL
      for (std::size_t j = kBlock - k; j < kBlock; ++j) {
        V::add_product(window[k + j - kBlock], window[k + j + 1 - kBlock], quotient, factor(n, j));
      }
    }
    COLONNADE_UNROLL
    for (std::size_t i = 0; i < kBlock; ++i) set(t, kBlock + i, window[i]);
    add_rows(t + kBlock * kLanes, n + kBlock * kLanes, q, limbs - kBlock);
  }

  // r = the columns t, carried.
  static COLONNADE_INLINE void carry_all(Limb* r, const Limb* t, std::size_t limbs) {
    Sum carry = V::zero();
    for (std::size_t i = 0; i < limbs; ++i) {
      const Sum x = V::add(sum(t, i), carry);
      carry = V::carry_of(x);
      set(r, i, V::low_limb(x));
    }
  }

  static void multiply(Limb* r, const Limb* a, const Limb* b, const MontgomeryConstants& m,
                       Limb* scratch) {
    const typename V::Scope scope;
    multiply_columns(r, a, b, m, scratch);
  }

  static void square(Limb* r, const Limb* a, const MontgomeryConstants& m, Limb* scratch) {
    const typename V::Scope scope;
    square_columns(r, a, m, scratch);
  }

  static __attribute__((noinline)) void multiply_columns(Limb* r, const Limb* a, const Limb* b,
                                                         const MontgomeryConstants& m,
                                                         Limb* scratch) {
    const std::size_t limbs = m.limbs, row = kBlock * kLanes;
    const Limb *n = m.prepared, *start = n + (limbs + 1) * kLanes;
    const Factor minus_n_inverse = factor(n, limbs);
    Limb *t = scratch, *q = t + 4 * limbs * kLanes;
    a = V::prepare_factors(t + 2 * limbs * kLanes, a, limbs);
    b = V::prepare_factors(t + 3 * limbs * kLanes, b, limbs);
    for (std::size_t i = 0; i < 2 * limbs; ++i) set(t, i, sum(start, i));
    add_rows(t, a, b, limbs);
    for (std::size_t i = 0;;) {
      find_quotients(q, t, n, minus_n_inverse);
      i += kBlock;
      if (i < limbs) add_rows(t + row, a, b += row, limbs);
      add_quotients(t, n, q, limbs);
      t += row;
      if (i == limbs) break;
    }
    carry_all(r, t, limbs);
  }

  // The squares and doubled products within a block of a, to the columns that start at it.
  static COLONNADE_INLINE void add_block_square(Limb* t, const Limb* a) {
    COLONNADE_UNROLL
    for (std::size_t column = 0; column < 2 * kBlock; ++column) {
      Sum x = V::zero();
      COLONNADE_UNROLL
      for (std::size_t i = 0; i < kBlock; ++i) {
        // i < j < kBlock, where wrapping below zero gives a large j.
        const std::size_t low = column - i, high = column - 1 - i;
        if (low > i && low < kBlock) V::add_low(x, factor(a, i), factor(a, low));
        if (high > i && high < kBlock) V::add_high(x, factor(a, i), factor(a, high));
      }
      x = V::add(V::double_of(x), sum(t, column));
      const Factor middle = factor(a, column / 2);
      if (column % 2 == 0) {
        V::add_low(x, middle, middle);
      } else {
        V::add_high(x, middle, middle);
      }
      set(t, column, x);
    }
  }

  // Block i of the rows of a * a: its own square and twice its products with what lies above.
  // `twice` is 2 * a; where it is cut, the bit that it carried from below is left out.
  static COLONNADE_INLINE void add_square_rows(Limb* t, const Limb* a, Limb* twice,
                                               const Limb* plain, std::size_t i,
                                               std::size_t limbs) {
    add_block_square(t + 2 * i * kLanes, a + i * kLanes);
    const std::size_t above = i + kBlock;
    if (above == limbs) return;
    const Factor whole = factor(twice, above);
    set_factor(twice, above, V::factor_of(V::low_limb(V::double_of(sum(plain, above)))));
    add_rows(t + (i + above) * kLanes, twice + above * kLanes, a + i * kLanes, limbs - above);
    set_factor(twice, above, whole);
  }

  static __attribute__((noinline)) void square_columns(Limb* r, const Limb* plain,
                                                       const MontgomeryConstants& m,
                                                       Limb* scratch) {
    const std::size_t limbs = m.limbs, row = kBlock * kLanes;
    const Limb *n = m.prepared, *start = n + (3 * limbs + 1) * kLanes;
    const Factor minus_n_inverse = factor(n, limbs);
    Limb *t = scratch, *twice = t + 3 * limbs * kLanes, *q = t + 4 * limbs * kLanes;
    const Limb* a = V::prepare_factors(t + 2 * limbs * kLanes, plain, limbs);
    for (std::size_t i = 0; i < 2 * limbs; ++i) set(t, i, sum(start, i));
    Sum carry = V::zero();
    for (std::size_t i = 0; i < limbs; ++i) {
      const Sum x = V::add(V::double_of(sum(plain, i)), carry);
      carry = V::carry_of(x);
      set_factor(twice, i, V::factor_of(V::low_limb(x)));
    }
    add_square_rows(t, a, twice, plain, 0, limbs);
    for (std::size_t i = 0;;) {
      find_quotients(q, t, n, minus_n_inverse);
      i += kBlock;
      if (i < limbs) add_square_rows(scratch, a, twice, plain, i, limbs);
      add_quotients(t, n, q, limbs);
      t += row;
      if (i == limbs) break;
    }
    carry_all(r, t, limbs);
  }
};

}  // namespace colonnade
