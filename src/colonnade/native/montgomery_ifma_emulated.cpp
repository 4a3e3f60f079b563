// The kernel of montgomery_ifma.cpp in plain C++, to test it on every processor. Slow; used only
// where it is asked for by name.

// No register holds a lane here, so that unrolling would only take time to compile.
#undef COLONNADE_UNROLL
#define COLONNADE_UNROLL
#include "montgomery_ifma.h"

namespace colonnade {
namespace {

struct Emulated {
  struct Vector {
    Limb lane[8];
  };
  using Mask = std::uint8_t;

  template <class Lane>
  static Vector each(const Lane& lane) {
    Vector r;
    for (std::size_t i = 0; i < 8; ++i) r.lane[i] = lane(i);
    return r;
  }
  // What the multiplier sees of its operands, and the product's 104 bits.
  static WideLimb product(Limb a, Limb b) {
    return static_cast<WideLimb>(a & kLaneLimbMask) * (b & kLaneLimbMask);
  }

  static Vector load(const Limb* a) {
    return each([&](std::size_t i) { return a[i]; });
  }
  static void store(Limb* a, const Vector& x) {
    for (std::size_t i = 0; i < 8; ++i) a[i] = x.lane[i];
  }
  static Vector setzero() { return set1(0); }
  static Vector set1(Limb x) {
    return each([&](std::size_t) { return x; });
  }
  template <class... Limbs>
  static Vector set(Limbs... x) {
    return {{x...}};
  }
  static Vector add(const Vector& a, const Vector& b) {
    return each([&](std::size_t i) { return a.lane[i] + b.lane[i]; });
  }
  static Vector bit_and(const Vector& a, const Vector& b) {
    return each([&](std::size_t i) { return a.lane[i] & b.lane[i]; });
  }
  static Vector bit_or(const Vector& a, const Vector& b) {
    return each([&](std::size_t i) { return a.lane[i] | b.lane[i]; });
  }
  template <unsigned kBits>
  static Vector srli(const Vector& a) {
    return each([&](std::size_t i) { return a.lane[i] >> kBits; });
  }
  static Mask cmpeq_mask(const Vector& a, const Vector& b) {
    Limb mask = 0;
    for (std::size_t i = 0; i < 8; ++i) mask |= (equal_mask(a.lane[i], b.lane[i]) & 1) << i;
    return static_cast<Mask>(mask);
  }
  static Vector maskz_mov(Mask mask, const Vector& a) {
    return each([&](std::size_t i) { return a.lane[i] & (Limb{0} - ((Limb{mask} >> i) & 1)); });
  }
  static Vector madd52lo(const Vector& sum, const Vector& a, const Vector& b) {
    return each([&](std::size_t i) {
      return sum.lane[i] + (static_cast<Limb>(product(a.lane[i], b.lane[i])) & kLaneLimbMask);
    });
  }
  static Vector madd52hi(const Vector& sum, const Vector& a, const Vector& b) {
    return each([&](std::size_t i) {
      return sum.lane[i] + static_cast<Limb>(product(a.lane[i], b.lane[i]) >> kLaneLimbBits);
    });
  }
};

}  // namespace

const Kernel& ifma_emulated_kernel() {
  static const Kernel kernel = lane_kernel<Ifma8<Emulated>>("ifma-emulated");
  return kernel;
}

}  // namespace colonnade
