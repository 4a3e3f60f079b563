// A Kernel from the arithmetic of montgomery_lanes.h: besides that, what it prepares of a modulus,
// and how rows get in and out of groups.
#pragma once

#include "montgomery_lanes.h"

namespace colonnade {

template <class V>
struct LaneKernel : LaneArithmetic<V> {
  using Base = LaneArithmetic<V>;
  using Sum = typename V::Sum;
  using Base::kBlock, Base::kLanes, Base::set, Base::set_factor, Base::sum;

  // n and -1/n as factors, then what multiply and square start their columns at.
  static std::size_t prepared_limbs(std::size_t limbs) { return (5 * limbs + 1) * kLanes; }
  // 2 * limbs columns, two numbers as factors, a block of quotients.
  static std::size_t scratch_limbs(std::size_t limbs) { return (4 * limbs + kBlock) * kLanes; }

  // Broadcasts n, and counts the products that each column will get.
  static void prepare(Limb* prepared, const Limb* n, Limb minus_n_inverse, std::size_t limbs) {
    const typename V::Scope scope;
    Limb* of_multiply = prepared + (limbs + 1) * kLanes;
    Limb* of_square = of_multiply + 2 * limbs * kLanes;
    for (std::size_t i = 0; i < prepared_limbs(limbs); ++i) prepared[i] = 0;
    for (std::size_t i = 0; i < limbs; ++i) prepared[i * kLanes] = n[i];
    prepared[limbs * kLanes] = minus_n_inverse & kLaneLimbMask;
    for (std::size_t i = 0; i < limbs; ++i) {
      for (std::size_t j = 0; j < limbs; ++j) {
        const bool same_block = i / kBlock == j / kBlock;
        const Limb square = j < i ? 0 : i != j && same_block ? 2 : 1;
        of_multiply[(i + j) * kLanes] -= 2 * V::kLowBias;
        of_multiply[(i + j + 1) * kLanes] -= 2 * V::kHighBias;
        of_square[(i + j) * kLanes] -= (1 + square) * V::kLowBias;
        of_square[(i + j + 1) * kLanes] -= (1 + square) * V::kHighBias;
      }
    }
    for (std::size_t i = 0; i < prepared_limbs(limbs); ++i) {
      prepared[i] = prepared[i - i % kLanes];
    }
    for (std::size_t i = 0; i <= limbs; ++i) {
      set_factor(prepared, i, V::factor_of(sum(prepared, i)));
    }
  }

  // Rows into a group, and back.
  static void load(Limb* group, const Limb* const* rows, std::size_t limbs) {
    for (std::size_t i = 0; i < limbs; ++i) set(group, i, V::gather(rows, i));
  }
  static void store(Limb* const* rows, const Limb* group, std::size_t limbs) {
    for (std::size_t i = 0; i < limbs; ++i) {
      COLONNADE_UNROLL
      for (std::size_t lane = 0; lane < kLanes; ++lane) rows[lane][i] = group[i * kLanes + lane];
    }
  }

  // group = table[index], each lane its own, from a table of rows. Reads every entry.
  static void select(Limb* group, const Limb* table, std::size_t count, std::size_t limbs,
                     const Limb* index) {
    gather_masked(group, limbs, count, V::load(index), [&](std::size_t entry, std::size_t i) {
      return V::broadcast(table[entry * limbs + i]);
    });
  }

  // group = table[index] from a table of groups. Reads every entry.
  static void select_group(Limb* group, const Limb* table, std::size_t count, std::size_t limbs,
                           Limb index) {
    gather_masked(group, limbs, count, V::broadcast(index), [&](std::size_t entry, std::size_t i) {
      return sum(table, entry * limbs + i);
    });
  }

  // A block of limbs at a time stays in registers while all entries pass.
  template <class Read>
  static COLONNADE_INLINE void gather_masked(Limb* group, std::size_t limbs, std::size_t count,
                                             Sum wanted, const Read& read) {
    for (std::size_t block = 0; block < limbs; block += kBlock) {
      Sum found[kBlock];
      COLONNADE_UNROLL
      for (std::size_t i = 0; i < kBlock; ++i) found[i] = V::zero();
      for (std::size_t entry = 0; entry < count; ++entry) {
        const Sum mask = V::equal_mask(wanted, V::broadcast(entry));
        COLONNADE_UNROLL
        for (std::size_t i = 0; i < kBlock; ++i) {
          found[i] = V::bit_or(found[i], V::bit_and(mask, read(entry, block + i)));
        }
      }
      COLONNADE_UNROLL
      for (std::size_t i = 0; i < kBlock; ++i) set(group, block + i, found[i]);
    }
  }
};

template <class V>
Kernel lane_kernel(const char* name) {
  using K = LaneKernel<V>;
  return {name,
          K::kLanes,
          kLaneLimbBits,
          K::kBlock,
          2,
          K::prepared_limbs,
          K::scratch_limbs,
          K::prepare,
          K::multiply,
          K::square,
          K::load,
          K::store,
          K::select,
          K::select_group};
}

}  // namespace colonnade
