#include "modulus.h"

#include <stdexcept>
#include <string>

namespace colonnade {
namespace {

Limb minus_inverse_of_odd(Limb n) {
  Limb inverse = n;  // right to 3 bits, which each step doubles
  for (int i = 0; i < 5; ++i) inverse *= 2 - n * inverse;
  return Limb{0} - inverse;
}

}  // namespace

Modulus::Modulus(const std::uint8_t* data, std::size_t size, const Kernel& kernel)
    : kernel_(kernel) {
  while (size > 0 && data[size - 1] == 0) --size;
  if (size > 0) bits_ = 8 * (size - 1) + bit_length(data[size - 1]);
  if (bits_ < kMinModulusBits || bits_ > kMaxModulusBits || data[0] % 2 == 0) {
    throw std::invalid_argument("got a modulus of " + std::to_string(bits_) +
                                " bits; want an odd one of 64 to 8192 bits");
  }
  const std::size_t used = (bits_ + kLimbBits - 1) / kLimbBits;
  const std::size_t limbs = (used + kBlockLimbs - 1) / kBlockLimbs * kBlockLimbs;
  n_.resize(limbs);
  load_little_endian(n_.data(), limbs, data, size);
  minus_n_inverse_ = minus_inverse_of_odd(n_[0]);

  // R mod n by doubling the largest power of two below n.
  one_.resize(limbs);
  one_[(bits_ - 1) / kLimbBits] = Limb{1} << ((bits_ - 1) % kLimbBits);
  for (std::size_t i = bits_ - 1; i < kLimbBits * limbs; ++i) double_modulo(one_.data());

  // R^2 mod n is the Montgomery form of R = 2^e: square and double over the bits of e.
  r_squared_ = one_;
  Multiplier arithmetic(*this);
  const std::size_t e = kLimbBits * limbs;
  for (std::size_t bit = bit_length(e); bit-- > 0;) {
    arithmetic.square(r_squared_.data(), r_squared_.data());
    if ((e >> bit) & 1) double_modulo(r_squared_.data());
  }
}

void Modulus::double_modulo(Limb* x) const {
  const std::size_t limbs = n_.size();
  Limb carry = 0;
  for (std::size_t i = 0; i < limbs; ++i) {
    const Limb next = x[i] >> 63;
    x[i] = x[i] << 1 | carry;
    carry = next;
  }
  LimbVector less(limbs);
  const Limb borrow = subtract(less.data(), x, n_.data(), limbs);
  select(x, Limb{0} - (borrow & ~carry), x, less.data(), limbs);
}

}  // namespace colonnade
