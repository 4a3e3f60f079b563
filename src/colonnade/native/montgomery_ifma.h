// The vector type of montgomery_lanes.h over AVX-512 IFMA: eight lanes, 52-bit products in one
// instruction each.
//
// The instructions come from a type I of static functions, so that the processor's own and a plain
// C++ stand-in compile the same kernel. Each function is named after its instruction.
#pragma once

#include "lane_kernel.h"

namespace colonnade {

template <class I>
struct Ifma8 {
  using Sum = typename I::Vector;
  using Factor = Sum;
  static constexpr std::size_t kLanes = 8, kBlock = 10;
  static constexpr Limb kLowBias = 0, kHighBias = 0;
  struct Scope {
    Scope() {}
  };

  static COLONNADE_INLINE Sum load(const Limb* a) { return I::load(a); }
  static COLONNADE_INLINE void store(Limb* a, Sum x) { I::store(a, x); }
  static COLONNADE_INLINE Sum gather(const Limb* const* rows, std::size_t i) {
    return I::set(rows[0][i], rows[1][i], rows[2][i], rows[3][i], rows[4][i], rows[5][i],
                  rows[6][i], rows[7][i]);
  }
  static COLONNADE_INLINE Factor load_factor(const Limb* a) { return I::load(a); }
  static COLONNADE_INLINE void store_factor(Limb* a, Factor x) { I::store(a, x); }

  static COLONNADE_INLINE Sum zero() { return I::setzero(); }
  static COLONNADE_INLINE Sum broadcast(Limb x) { return I::set1(x); }
  static COLONNADE_INLINE Sum add(Sum a, Sum b) { return I::add(a, b); }
  static COLONNADE_INLINE Sum double_of(Sum a) { return I::add(a, a); }
  static COLONNADE_INLINE Sum bit_and(Sum a, Sum b) { return I::bit_and(a, b); }
  static COLONNADE_INLINE Sum bit_or(Sum a, Sum b) { return I::bit_or(a, b); }
  static COLONNADE_INLINE Sum equal_mask(Sum a, Sum b) {
    return I::maskz_mov(I::cmpeq_mask(a, b), I::set1(~Limb{0}));
  }
  static COLONNADE_INLINE Sum low_limb(Sum a) { return I::bit_and(a, I::set1(kLaneLimbMask)); }
  static COLONNADE_INLINE Sum carry_of(Sum a) { return I::template srli<kLaneLimbBits>(a); }
  static COLONNADE_INLINE Factor factor_of(Sum limb) { return limb; }

  static COLONNADE_INLINE void add_low(Sum& low, Factor a, Factor b) {
    low = I::madd52lo(low, a, b);
  }
  static COLONNADE_INLINE void add_high(Sum& high, Factor a, Factor b) {
    high = I::madd52hi(high, a, b);
  }
  static COLONNADE_INLINE void add_product(Sum& low, Sum& high, Factor a, Factor b) {
    add_low(low, a, b);
    add_high(high, a, b);
  }
  // The multiplier leaves out the bits of the column above the limb.
  static COLONNADE_INLINE Factor quotient_of(Sum column, Factor b) {
    return I::madd52lo(I::setzero(), column, b);
  }
  // Factors are the limbs themselves.
  static COLONNADE_INLINE const Limb* prepare_factors(Limb*, const Limb* a, std::size_t) {
    return a;
  }
};

}  // namespace colonnade
