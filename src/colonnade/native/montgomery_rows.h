// Montgomery multiplication and squaring over one primitive, the row: t += a * b for a one-limb b.
//
// A kernel supplies the row as a type R with
//   static Limb R::add_product(Limb* t, const Limb* a, std::size_t limbs, Limb b)
// which adds a * b to t[0..limbs) and returns the limb that carries out; limbs is a multiple of
// kBlockLimbs. Product and reduction are separate passes (SOS): the sums of a row then stay
// below 2^(64 * (limbs + 1)) and its carry has a free limb to go to. No branch and no address
// depends on a value.
#pragma once

#include "kernel.h"

namespace colonnade {

// r = t / R mod n for t of 2 * limbs limbs, t < n * R. Destroys t.
template <class Row>
inline void montgomery_reduce(Limb* r, Limb* t, const MontgomeryConstants& m) {
  const std::size_t limbs = m.limbs;
  for (std::size_t i = 0; i < limbs; ++i) {
    // The row makes t[i] zero, so its carry is kept there and added in one pass below.
    t[i] = Row::add_product(t + i, m.n, limbs, t[i] * m.minus_n_inverse);
  }
  Limb carry = 0;
  Limb* high = t + limbs;
  for (std::size_t i = 0; i < limbs; ++i) {
    const WideLimb x = static_cast<WideLimb>(high[i]) + t[i] + carry;
    high[i] = static_cast<Limb>(x);
    carry = static_cast<Limb>(x >> 64);
  }
  // The value is below 2n: keep it where subtracting n borrows more than the carry holds.
  const Limb borrow = subtract(t, high, m.n, limbs);
  select(r, Limb{0} - (borrow & ~carry), high, t, limbs);
}

template <class Row>
void montgomery_multiply(Limb* r, const Limb* a, const Limb* b, const MontgomeryConstants& m,
                         Limb* t) {
  const std::size_t limbs = m.limbs;
  std::memset(t, 0, limbs * kLimbBytes);
  for (std::size_t i = 0; i < limbs; ++i) t[limbs + i] = Row::add_product(t + i, a, limbs, b[i]);
  montgomery_reduce<Row>(r, t, m);
}

// t = 2 * t + sum of a_i^2 * 2^(128 i).
inline void double_and_add_squares(Limb* t, const Limb* a, std::size_t limbs) {
  Limb carry = 0, shifted_out = 0;
  for (std::size_t i = 0; i < limbs; ++i) {
    const WideLimb square = static_cast<WideLimb>(a[i]) * a[i];
    const Limb low = t[2 * i], high = t[2 * i + 1];
    WideLimb x = static_cast<WideLimb>(low << 1 | shifted_out) + static_cast<Limb>(square) + carry;
    t[2 * i] = static_cast<Limb>(x);
    x = static_cast<WideLimb>(high << 1 | low >> 63) + static_cast<Limb>(square >> 64) +
        static_cast<Limb>(x >> 64);
    t[2 * i + 1] = static_cast<Limb>(x);
    carry = static_cast<Limb>(x >> 64);
    shifted_out = high >> 63;
  }
}

// Each a_i * a_j with i < j once, then doubled. Row i would start at limb i + 1; it starts at the
// block that holds i, over a copy of a in which the limbs up to i are zero.
template <class Row>
void montgomery_square(Limb* r, const Limb* a, const MontgomeryConstants& m, Limb* t) {
  const std::size_t limbs = m.limbs;
  Limb* rest = t + 2 * limbs;
  copy(rest, a, limbs);
  std::memset(t, 0, limbs * kLimbBytes);
  for (std::size_t i = 0; i < limbs; ++i) {
    const std::size_t start = i - i % kBlockLimbs;
    rest[i] = 0;
    t[limbs + i] = Row::add_product(t + i + start, rest + start, limbs - start, a[i]);
  }
  double_and_add_squares(t, a, limbs);
  montgomery_reduce<Row>(r, t, m);
}

inline void load_row(Limb* group, const Limb* const* rows, std::size_t limbs) {
  copy(group, rows[0], limbs);
}

inline void store_row(Limb* const* rows, const Limb* group, std::size_t limbs) {
  copy(rows[0], group, limbs);
}

inline void select_row(Limb* r, const Limb* table, std::size_t count, std::size_t limbs,
                       Limb index) {
  std::memset(r, 0, limbs * kLimbBytes);
  for (std::size_t entry = 0; entry < count; ++entry) {
    const Limb mask = equal_mask(entry, index);
    const Limb* value = table + entry * limbs;
    for (std::size_t i = 0; i < limbs; ++i) r[i] |= value[i] & mask;
  }
}

template <class Row>
Kernel row_kernel(const char* name) {
  return {name,
          1,
          kLimbBits,
          kBlockLimbs,
          0,
          [](std::size_t) { return std::size_t{0}; },
          [](std::size_t limbs) { return 3 * limbs; },
          [](Limb*, const Limb*, Limb, std::size_t) {},
          montgomery_multiply<Row>,
          montgomery_square<Row>,
          load_row,
          store_row,
          [](Limb* r, const Limb* table, std::size_t count, std::size_t limbs,
             const Limb* index) { select_row(r, table, count, limbs, *index); },
          select_row};
}

}  // namespace colonnade
