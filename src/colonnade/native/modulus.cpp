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

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
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
  n_words_.resize(rounded_up((bits_ + kLimbBits - 1) / kLimbBits, kBlockLimbs));
  load_little_endian(n_words_.data(), words(), data, size);
  minus_n_inverse_ = minus_inverse_of_odd(n_words_[0]);
  const std::size_t used = (bits_ + kernel.spare_bits + kernel.limb_bits - 1) / kernel.limb_bits;
  n_.resize(rounded_up(used, kernel.block_limbs));
  split_words(n_.data(), limbs(), kernel.limb_bits, n_words(), words());
  prepared_.resize(kernel.prepared_limbs(limbs()));
  kernel.prepare(prepared_.data(), n_.data(), minus_n_inverse_, limbs());

  const std::size_t e = kernel.limb_bits * limbs();  // R = 2^e
  LimbVector plain_one(words());
  plain_one[0] = 1;
  plain_one_group_ = group_of(plain_one);
  one_.resize(limbs());
  if (kernel.lanes > 1) {
    const auto one_lane = std::make_shared<Modulus>(data, size, one_lane_kernel());
    split_words(one_.data(), limbs(), kernel.limb_bits, one_lane->power_of_two(e).data(), words());
    r_squared_group_ = group_of(one_lane->power_of_two(2 * e));
    one_lane_ = one_lane;
    return;
  }
  // R mod n by doubling the largest power of two below n.
  one_[(bits_ - 1) / kLimbBits] = Limb{1} << ((bits_ - 1) % kLimbBits);
  for (std::size_t i = bits_ - 1; i < e; ++i) double_modulo(one_.data());
  r_squared_group_ = power_of_two(2 * e);
}

LimbVector Modulus::power_of_two(std::size_t e) const {
  // Square and double over the bits of e, in Montgomery form.
  LimbVector x = one_;
  Multiplier arithmetic(*this);
  for (std::size_t bit = bit_length(Limb{e}); bit-- > 0;) {
    arithmetic.square(x.data(), x.data());
    if ((e >> bit) & 1) double_modulo(x.data());
  }
  arithmetic.leave(x.data(), x.data());
  return x;
}

LimbVector Modulus::group_of(const LimbVector& plain) const {
  LimbVector row(limbs()), group(kernel_.lanes * limbs());
  split_words(row.data(), limbs(), kernel_.limb_bits, plain.data(), words());
  const Limb* rows[kMaxLanes];
  std::fill(rows, rows + kMaxLanes, row.data());
  kernel_.load(group.data(), rows, limbs());
  return group;
}

void Modulus::double_modulo(Limb* x) const {
  Limb carry = 0;
  for (std::size_t i = 0; i < words(); ++i) {
    const Limb next = x[i] >> 63;
    x[i] = x[i] << 1 | carry;
    carry = next;
  }
  LimbVector less(words());
  const Limb borrow = subtract(less.data(), x, n_words(), words());
  select(x, Limb{0} - (borrow & ~carry), x, less.data(), words());
}

}  // namespace colonnade
