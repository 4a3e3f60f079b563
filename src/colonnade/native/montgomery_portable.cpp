// The kernel for every compiler with a 128-bit integer.
#include "montgomery_rows.h"

namespace colonnade {
namespace {

struct PortableRow {
  static inline Limb add_product(Limb* t, const Limb* a, std::size_t limbs, Limb b) {
    Limb carry = 0;
    for (std::size_t i = 0; i < limbs; i += kBlockLimbs) {
      for (std::size_t j = i; j < i + kBlockLimbs; ++j) {
        const WideLimb x = static_cast<WideLimb>(a[j]) * b + t[j] + carry;
        t[j] = static_cast<Limb>(x);
        carry = static_cast<Limb>(x >> 64);
      }
    }
    return carry;
  }
};

}  // namespace

const Kernel& portable_kernel() {
  static const Kernel kernel = row_kernel<PortableRow>("portable");
  return kernel;
}

}  // namespace colonnade
