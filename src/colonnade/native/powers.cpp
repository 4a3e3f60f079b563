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
  const std::size_t bits = bit_length(exponent, size), limbs = arithmetic.group_limbs();
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

// The cheapest fixed windows for an exponent of `bits` bits: all powers, then one a window.
std::size_t fixed_window(std::size_t widest, std::size_t bits) {
  return cheapest_window(
      widest, [&](std::size_t w) { return (std::size_t{1} << w) + (bits + w - 1) / w; });
}

// r = a^exponent by fixed windows, each of them a masked read and a multiplication.
void fixed_window_power(Multiplier& arithmetic, Limb* r, const Limb* a, const ByteVector& exponent,
                        std::size_t bits) {
  const std::size_t width = fixed_window(kWidestSecretWindow, bits);
  const std::size_t limbs = arithmetic.group_limbs(), entries = std::size_t{1} << width;
  LimbVector table(entries * limbs), factor(limbs);
  all_powers(arithmetic, table.data(), a, entries);
  arithmetic.set_one(r);
  for (std::size_t window = (bits + width - 1) / width; window-- > 0;) {
    const Limb index = bits_at(exponent.data(), exponent.size(), window * width, width);
    arithmetic.select_group(factor.data(), table.data(), entries, index);
    arithmetic.square_in_place(r, width);
    arithmetic.multiply(r, r, factor.data());
  }
}

// r = a^e in each lane for exponents of its own, by fixed windows: the lanes square together.
void each_power(Multiplier& arithmetic, Limb* r, const Limb* a, const std::uint8_t* exponents,
                std::size_t size, std::size_t count) {
  std::size_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bits = std::max(bits, bit_length(exponents + i * size, size));
  }
  const std::size_t width = fixed_window(kWidestSlidingWindow, bits);
  const std::size_t limbs = arithmetic.limbs(), entries = std::size_t{1} << width;
  const std::size_t lanes = arithmetic.lanes();
  LimbVector groups(entries * arithmetic.group_limbs()), rows(groups.size());
  all_powers(arithmetic, groups.data(), a, entries);
  store_table(arithmetic, rows.data(), entries * limbs, lanes, groups.data(), entries);
  Product product(arithmetic, r);
  for (std::size_t window = (bits + width - 1) / width; window-- > 0;) {
    product.square(width);
    const Limb* factors[kMaxLanes];
    Limb any = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const Limb digit =
          lane < count ? bits_at(exponents + lane * size, size, window * width, width) : 0;
      any |= digit;
      factors[lane] = rows.data() + (lane * entries + digit) * limbs;
    }
    if (any == 0) continue;
    arithmetic.load(groups.data(), factors);
    product.multiply(groups.data());
  }
  product.finish();
}

// Runs power(arithmetic, r, a, i, count) on groups of a: numbers i to i + count.
template <class Power>
Residues power_groups(const Residues& a, int threads, const Power& power) {
  Residues result(a.modulus(), a.count());
  for_each_group(*a.modulus(), a.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb *base = arithmetic.temporary(0), *r = arithmetic.temporary(1);
                   a.load(arithmetic, base, first, count);
                   power(arithmetic, r, base, first, count);
                   result.store(arithmetic, first, r, count);
                 });
  return result;
}

}  // namespace

Residues pow_secret(const Residues& a, const ByteVector& exponent, std::size_t bits, int threads) {
  if (bits_beyond(exponent.data(), exponent.size(), bits) != 0) {
    throw std::invalid_argument("got an exponent longer than the stated " + std::to_string(bits) +
                                " bits; state its public length");
  }
  return apart_from_few_items(a, 1, threads, [&](const Residues& part) {
    return power_groups(part, threads, [&](Multiplier& arithmetic, Limb* r, const Limb* base,
                                           std::size_t, std::size_t) {
      fixed_window_power(arithmetic, r, base, exponent, bits);
    });
  });
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
  if (shared) {
    return apart_from_few_items(a, 1, threads, [&](const Residues& part) {
      return power_groups(part, threads, [&](Multiplier& arithmetic, Limb* r, const Limb* base,
                                             std::size_t, std::size_t) {
        sliding_power(arithmetic, r, base, exponents.data(), width);
      });
    });
  }
  return power_groups(a, threads, [&](Multiplier& arithmetic, Limb* r, const Limb* base,
                                      std::size_t first, std::size_t count) {
    each_power(arithmetic, r, base, exponents.data() + first * width, width, count);
  });
}

}  // namespace colonnade
