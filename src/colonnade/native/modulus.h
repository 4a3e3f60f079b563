// An odd modulus with its Montgomery constants, and one worker's arithmetic modulo it.
#pragma once

#include "kernel.h"

namespace colonnade {

class Modulus {
 public:
  // `data` is n, least significant byte first. Throws std::invalid_argument unless n is odd and
  // has kMinModulusBits to kMaxModulusBits bits.
  Modulus(const std::uint8_t* data, std::size_t size, const Kernel& kernel);

  const Kernel& kernel() const { return kernel_; }
  std::size_t bits() const { return bits_; }
  std::size_t byte_width() const { return (bits_ + 7) / 8; }
  std::size_t limbs() const { return n_.size(); }
  const Limb* n() const { return n_.data(); }
  const Limb* one() const { return one_.data(); }            // R mod n
  const Limb* r_squared() const { return r_squared_.data(); }  // R^2 mod n
  MontgomeryConstants constants() const { return {n_.data(), minus_n_inverse_, n_.size()}; }

  bool operator==(const Modulus& other) const { return this == &other || n_ == other.n_; }

 private:
  void double_modulo(Limb* x) const;

  const Kernel& kernel_;
  std::size_t bits_ = 0;
  LimbVector n_;
  Limb minus_n_inverse_ = 0;
  LimbVector one_, r_squared_;
};

// A kernel bound to a modulus and to scratch memory: one for each thread.
class Multiplier {
 public:
  explicit Multiplier(const Modulus& modulus)
      : modulus_(modulus),
        kernel_(modulus.kernel()),
        constants_(modulus.constants()),
        scratch_(kScratchRows * modulus.limbs()) {}

  std::size_t limbs() const { return constants_.limbs; }
  void multiply(Limb* r, const Limb* a, const Limb* b) {
    kernel_.multiply(r, a, b, constants_, scratch_.data());
  }
  void square(Limb* r, const Limb* a) { kernel_.square(r, a, constants_, scratch_.data()); }
  void square_in_place(Limb* r, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) square(r, r);
  }
  void set_one(Limb* r) const { copy(r, modulus_.one(), limbs()); }
  // Plain to Montgomery form (a * R mod n), and back.
  void enter(Limb* r, const Limb* a) { multiply(r, a, modulus_.r_squared()); }
  void leave(Limb* r, const Limb* a) {
    LimbVector plain_one(limbs());
    plain_one[0] = 1;
    multiply(r, a, plain_one.data());
  }

 private:
  const Modulus& modulus_;
  const Kernel& kernel_;
  MontgomeryConstants constants_;
  LimbVector scratch_;
};

// A product under construction. Starts as one without paying a multiplication for it.
class Product {
 public:
  Product(Multiplier& arithmetic, Limb* value) : arithmetic_(arithmetic), value_(value) {}

  void multiply(const Limb* factor) {
    if (is_one_) {
      copy(value_, factor, arithmetic_.limbs());
    } else {
      arithmetic_.multiply(value_, value_, factor);
    }
    is_one_ = false;
  }
  void square(std::size_t times) {
    if (!is_one_) arithmetic_.square_in_place(value_, times);
  }
  void finish() {
    if (is_one_) arithmetic_.set_one(value_);
  }

 private:
  Multiplier& arithmetic_;
  Limb* value_;
  bool is_one_ = true;
};

}  // namespace colonnade
