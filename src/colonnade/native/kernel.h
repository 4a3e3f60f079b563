// The two operations everything is built from, and the choice of who computes them.
#pragma once

#include <map>
#include <string>

#include "limbs.h"

namespace colonnade {

// What a kernel needs to know of a modulus, in limbs of its own; R is 2^(limb_bits * limbs).
struct MontgomeryConstants {
  const Limb* n;
  Limb minus_n_inverse;   // -1/n mod 2^64
  std::size_t limbs;      // a multiple of block_limbs
  const Limb* prepared;   // what `prepare` made of the above
};

// Numbers are stored as rows: `limbs` limbs of `limb_bits` bits, one limb in 64. A kernel computes
// on groups of `lanes` numbers: limb i of all of them, then limb i + 1. Of one lane, a group is a
// row. Limbs are normalised; a value is below n, or below 2n where there are spare bits.
struct Kernel {
  const char* name;
  std::size_t lanes, limb_bits, block_limbs;
  std::size_t spare_bits;  // that R has beyond n: 0, or 2 for values below 2n

  std::size_t (*prepared_limbs)(std::size_t limbs);
  std::size_t (*scratch_limbs)(std::size_t limbs);
  void (*prepare)(Limb* prepared, const Limb* n, Limb minus_n_inverse, std::size_t limbs);

  // a * b / R mod n in each lane. The time depends on `limbs` alone. r may be a or b.
  void (*multiply)(Limb* r, const Limb* a, const Limb* b, const MontgomeryConstants& m,
                   Limb* scratch);
  void (*square)(Limb* r, const Limb* a, const MontgomeryConstants& m, Limb* scratch);

  // `lanes` rows into a group, and back.
  void (*load)(Limb* group, const Limb* const* rows, std::size_t limbs);
  void (*store)(Limb* const* rows, const Limb* group, std::size_t limbs);

  // group = table[index] of `count` entries, reading all of them: neither time nor addresses tell
  // the index. The table has rows and each lane an index, aligned as groups are; or it has groups,
  // and there is one.
  void (*select)(Limb* group, const Limb* table, std::size_t count, std::size_t limbs,
                 const Limb* index);
  void (*select_group)(Limb* group, const Limb* table, std::size_t count, std::size_t limbs,
                       Limb index);
};

constexpr std::size_t kMaxLanes = 8;

const Kernel& portable_kernel();
const Kernel& ifma_emulated_kernel();
#if defined(__x86_64__)
const Kernel& adx_kernel();
const Kernel& avx2_kernel();
const Kernel& ifma_kernel();
#endif

// What this processor offers, by the names that kernels go by.
std::map<std::string, bool> cpu_features();

// The kernel of that name. Throws std::invalid_argument when there is none or this processor
// cannot run it.
const Kernel& kernel_by_name(const std::string& name);

// The kernel that COLONNADE_KERNEL names, else the fastest this processor runs. Decided once.
const Kernel& selected_kernel();

// The fastest of those with one lane.
const Kernel& one_lane_kernel();

}  // namespace colonnade
