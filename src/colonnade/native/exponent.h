// Reading little-endian exponents by bits and windows, and choosing how wide windows are.
#pragma once

#include "modulus.h"

namespace colonnade {

// `count` bits (at most 16) from bit `offset` on; bits past the end are zero. Which bytes are read
// depends on the position alone.
inline Limb bits_at(const std::uint8_t* data, std::size_t size, std::size_t offset,
                    std::size_t count) {
  Limb value = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t at = offset / 8 + i;
    if (at < size) value |= static_cast<Limb>(data[at]) << (8 * i);
  }
  return (value >> (offset % 8)) & ((Limb{1} << count) - 1);
}

inline std::size_t bit_length(const std::uint8_t* data, std::size_t size) {
  while (size > 0 && data[size - 1] == 0) --size;
  return size == 0 ? 0 : 8 * (size - 1) + bit_length(Limb{data[size - 1]});
}

// All bits from `bits` on, or-ed; reads every such byte whatever it holds.
inline Limb bits_beyond(const std::uint8_t* data, std::size_t size, std::size_t bits) {
  Limb seen = 0;
  for (std::size_t i = bits / 8; i < size; ++i) {
    const std::size_t skip = i == bits / 8 ? bits % 8 : 0;
    seen |= static_cast<Limb>(data[i]) >> skip;
  }
  return seen;
}

// The window width with the least cost(width) among 1 to `widest`.
template <class Cost>
inline std::size_t cheapest_window(std::size_t widest, const Cost& cost) {
  std::size_t best = 1;
  for (std::size_t width = 2; width <= widest; ++width) {
    if (cost(width) < cost(best)) best = width;
  }
  return best;
}

// table = a^1, a^3, a^5, ... : `count` odd powers, groups as all that follows.
inline void odd_powers(Multiplier& arithmetic, Limb* table, const Limb* a, std::size_t count) {
  const std::size_t limbs = arithmetic.group_limbs();
  copy(table, a, limbs);
  if (count < 2) return;
  LimbVector square(limbs);
  arithmetic.square(square.data(), a);
  for (std::size_t i = 1; i < count; ++i) {
    arithmetic.multiply(table + i * limbs, table + (i - 1) * limbs, square.data());
  }
}

// table = a^0, a^1, a^2, ... : `count` powers, at least two.
inline void all_powers(Multiplier& arithmetic, Limb* table, const Limb* a, std::size_t count) {
  const std::size_t limbs = arithmetic.group_limbs();
  arithmetic.set_one(table);
  copy(table + limbs, a, limbs);
  for (std::size_t i = 2; i < count; ++i) {
    if (i % 2 == 0) {
      arithmetic.square(table + i * limbs, table + i / 2 * limbs);
    } else {
      arithmetic.multiply(table + i * limbs, table + (i - 1) * limbs, a);
    }
  }
}

// The entries of a table of groups as rows: entry i of lane l goes to tables + l * step, row i.
inline void store_table(Multiplier& arithmetic, Limb* tables, std::size_t step, std::size_t lanes,
                        const Limb* table, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    arithmetic.store(tables + i * arithmetic.limbs(), table + i * arithmetic.group_limbs(), lanes,
                     step);
  }
}

}  // namespace colonnade
