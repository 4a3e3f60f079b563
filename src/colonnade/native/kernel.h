// The two operations everything is built from, and the choice of who computes them.
#pragma once

#include <map>
#include <string>

#include "limbs.h"

namespace colonnade {

// What a kernel needs to know of a modulus n; R is 2^(64 * limbs).
struct MontgomeryConstants {
  const Limb* n;
  Limb minus_n_inverse;  // -1/n mod 2^64
  std::size_t limbs;     // a multiple of kBlockLimbs
};

// Both take numbers below n and give the one number below n that is a * b / R mod n. The time
// depends on `limbs` alone. r may be a or b; scratch has kScratchRows * limbs limbs.
struct Kernel {
  const char* name;
  void (*multiply)(Limb* r, const Limb* a, const Limb* b, const MontgomeryConstants& m,
                   Limb* scratch);
  void (*square)(Limb* r, const Limb* a, const MontgomeryConstants& m, Limb* scratch);
};

constexpr std::size_t kScratchRows = 3;

const Kernel& portable_kernel();
#if defined(__x86_64__)
const Kernel& adx_kernel();
#endif

// What this processor offers, by the names that kernels go by.
std::map<std::string, bool> cpu_features();

// The kernel of that name. Throws std::invalid_argument when there is none or this processor
// cannot run it.
const Kernel& kernel_by_name(const std::string& name);

// The kernel that COLONNADE_KERNEL names, else the fastest this processor runs. Decided once.
const Kernel& selected_kernel();

}  // namespace colonnade
