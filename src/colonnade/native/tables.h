// Powers prepared once for bases that are raised to many exponents. Both constructors name the
// modulus that the caller takes the bases to belong to, and refuse another.
#pragma once

#include "residues.h"

namespace colonnade {

// Every window's powers of each base: base^e is a product of one entry a window, no squarings.
// Memory: bases * ceil(exponent_bits / window) * 2^window numbers, at most kMaxTableBytes.
class FixedBaseTable {
 public:
  static constexpr std::size_t kMaxTableBytes = std::size_t{1} << 30;
  static constexpr std::size_t kWidestWindow = 12;

  FixedBaseTable(const ModulusPointer& modulus, const Residues& bases, std::size_t exponent_bits,
                 std::size_t window, int threads);

  std::size_t exponent_bits() const { return exponent_bits_; }
  std::size_t bases() const { return bases_; }
  std::size_t bytes() const { return table_.size() * kLimbBytes; }

  // The base to the power of each little-endian exponent of `width` bytes. The first reads every
  // entry of a window and masks; the second looks only where the exponent says.
  Residues power_secret(const ByteVector& exponents, std::size_t width, std::size_t base,
                        int threads) const;
  Residues power_vartime(const ByteVector& exponents, std::size_t width, std::size_t base,
                         int threads) const;

 private:
  std::size_t count_exponents(const ByteVector& exponents, std::size_t width,
                              std::size_t base) const;
  const Limb* window_table(std::size_t base, std::size_t window) const {
    return table_.data() + ((base * windows_ + window) << window_bits_) * modulus_->limbs();
  }

  ModulusPointer modulus_;
  std::size_t bases_, exponent_bits_, window_bits_, windows_;
  LimbVector table_;
};

// The powers 0 to 2^digit_bits - 1 of every base, for products of one power of each.
// Memory: bases * 2^digit_bits numbers, at most FixedBaseTable::kMaxTableBytes.
class ProductTable {
 public:
  ProductTable(const ModulusPointer& modulus, const Residues& bases, std::size_t digit_bits,
               int threads);

  std::size_t bases() const { return bases_; }
  std::size_t bytes() const { return table_.size() * kLimbBytes; }

  // Product over i of base_i^digits[row, i] for each row of `count` x bases() digits.
  Residues products_vartime(const ByteVector& digits, std::size_t count, int threads) const;

 private:
  ModulusPointer modulus_;
  std::size_t bases_, digit_bits_;
  LimbVector table_;
};

}  // namespace colonnade
