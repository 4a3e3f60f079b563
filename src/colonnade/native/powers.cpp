#include <stdexcept>
#include <string>

#include "exponent.h"
#include "parallel.h"
#include "residues.h"

namespace colonnade {
namespace {

// Wider tables leave the first-level cache and are slow to read by masking.
constexpr std::size_t kWidestSecretWindow = 6;
constexpr std::size_t kWidestSlidingWindow = 8;

// r = a^exponent by windows of zeros and of odd numbers.
void sliding_power(Multiplier& arithmetic, Limb* r, const Limb* a, const std::uint8_t* exponent,
                   std::size_t size) {
  const std::size_t bits = bit_length(exponent, size), limbs = arithmetic.limbs();
  const std::size_t width = cheapest_window(kWidestSlidingWindow, [&](std::size_t w) {
    return (std::size_t{1} << (w - 1)) + bits / (w + 1);
  });
  LimbVector table(limbs << (width - 1));
  odd_powers(arithmetic, table.data(), a, std::size_t{1} << (width - 1));
  Product product(arithmetic, r);
  for (std::size_t left = bits; left > 0;) {  // bits [left, bits) are done
    if (bits_at(exponent, size, left - 1, 1) == 0) {
      product.square(1);
      --left;
      continue;
    }
    std::size_t low = left > width ? left - width : 0;
    while (bits_at(exponent, size, low, 1) == 0) ++low;
    product.square(left - low);
    product.multiply(table.data() + bits_at(exponent, size, low, left - low) / 2 * limbs);
    left = low;
  }
  product.finish();
}

// r = a^exponent by fixed windows, each of them a masked read and a multiplication.
void fixed_window_power(Multiplier& arithmetic, Limb* r, const Limb* a, const ByteVector& exponent,
                        std::size_t bits, std::size_t width) {
  const std::size_t limbs = arithmetic.limbs(), entries = std::size_t{1} << width;
  LimbVector table(entries * limbs), factor(limbs);
  all_powers(arithmetic, table.data(), a, entries);
  arithmetic.set_one(r);
  for (std::size_t window = (bits + width - 1) / width; window-- > 0;) {
    const Limb index = bits_at(exponent.data(), exponent.size(), window * width, width);
    read_by_masking(factor.data(), table.data(), entries, limbs, index);
    arithmetic.square_in_place(r, width);
    arithmetic.multiply(r, r, factor.data());
  }
}

}  // namespace

Residues pow_secret(const Residues& a, const ByteVector& exponent, std::size_t bits, int threads) {
  if (bits_beyond(exponent.data(), exponent.size(), bits) != 0) {
    throw std::invalid_argument("got an exponent longer than the stated " + std::to_string(bits) +
                                " bits; state its public length");
  }
  const std::size_t width = cheapest_window(kWidestSecretWindow, [&](std::size_t w) {
    return (std::size_t{1} << w) + (bits + w - 1) / w;
  });
  Residues result(a.modulus(), a.count());
  parallel_for(a.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*a.modulus());
    for (std::size_t i = begin; i < end; ++i) {
      fixed_window_power(arithmetic, result.row(i), a.row(i), exponent, bits, width);
    }
  });
  return result;
}

Residues pow_vartime(const Residues& a, const ByteVector& exponents, std::size_t width,
                     int threads) {
  const bool shared = exponents.size() == width;
  const bool whole = width > 0 && exponents.size() % width == 0;
  if (!whole || (!shared && exponents.size() / width != a.count())) {
    throw std::invalid_argument("got " + std::to_string(exponents.size()) + " exponent bytes of " +
                                std::to_string(width) + " each; want one exponent, or " +
                                std::to_string(a.count()) + ", one for each number");
  }
  Residues result(a.modulus(), a.count());
  parallel_for(a.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*a.modulus());
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint8_t* exponent = exponents.data() + (shared ? 0 : i * width);
      sliding_power(arithmetic, result.row(i), a.row(i), exponent, width);
    }
  });
  return result;
}

}  // namespace colonnade
