#include "tables.h"

#include <stdexcept>
#include <string>

#include "exponent.h"
#include "products.h"

namespace colonnade {
namespace {

// The limbs of a table of tables * entries numbers. Throws where it would be too large.
std::size_t table_limbs(std::size_t tables, std::size_t entries, std::size_t limbs) {
  const std::size_t most = FixedBaseTable::kMaxTableBytes / kLimbBytes;
  if (tables > most / (entries * limbs)) {
    throw std::invalid_argument("got a table of more than " +
                                std::to_string(FixedBaseTable::kMaxTableBytes >> 20) +
                                " MiB; use a narrower window or fewer bases");
  }
  return tables * entries * limbs;
}

void require_between(const char* name, std::size_t value, std::size_t least, std::size_t most) {
  if (value < least || value > most) {
    throw std::invalid_argument("got " + std::string(name) + " = " + std::to_string(value) +
                                "; want " + std::to_string(least) + " to " + std::to_string(most));
  }
}

// Every power 0 to `entries` - 1 of each number, one table after the other.
void fill_tables(LimbVector& tables, const Residues& numbers, std::size_t entries, int threads) {
  for_each_group(*numbers.modulus(), numbers.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   const std::size_t step = entries * arithmetic.limbs();
                   LimbVector powers(entries * arithmetic.group_limbs());
                   numbers.load(arithmetic, arithmetic.temporary(0), first, count);
                   all_powers(arithmetic, powers.data(), arithmetic.temporary(0), entries);
                   store_table(arithmetic, tables.data() + first * step, step, count,
                               powers.data(), entries);
                 });
}

// a^(2^(window * w)) for w from 0 to `windows` - 1, each number's powers side by side.
Residues window_powers(const Residues& a, std::size_t windows, std::size_t window, int threads) {
  Residues result(a.modulus(), a.count() * windows);
  for_each_group(*a.modulus(), a.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb* power = arithmetic.temporary(0);
                   a.load(arithmetic, power, first, count);
                   for (std::size_t w = 0; w < windows; ++w) {
                     if (w > 0) arithmetic.square_in_place(power, window);
                     arithmetic.store(result.row(first * windows + w), power, count,
                                      windows * arithmetic.limbs());
                   }
                 });
  return result;
}

}  // namespace

FixedBaseTable::FixedBaseTable(const ModulusPointer& modulus, const Residues& bases,
                               std::size_t exponent_bits, std::size_t window, int threads)
    : modulus_(modulus),
      bases_(bases.count()),
      exponent_bits_(exponent_bits),
      window_bits_(window) {
  require_same_modulus(*modulus, *bases.modulus());
  require_between("window", window, 1, kWidestWindow);
  require_between("exponent_bits", exponent_bits, 1, kMaxModulusBits);
  require_between("number of bases", bases_, 1, SIZE_MAX);
  windows_ = (exponent_bits + window - 1) / window;
  const std::size_t limbs = modulus_->limbs(), entries = std::size_t{1} << window;
  table_.resize(table_limbs(bases_ * windows_, entries, limbs));
  const Residues first = apart_from_few_items(bases, 1, threads, [&](const Residues& part) {
    return window_powers(part, windows_, window, threads);
  });
  fill_tables(table_, first, entries, threads);
}

std::size_t FixedBaseTable::count_exponents(const ByteVector& exponents, std::size_t width,
                                            std::size_t base) const {
  require_between("base", base, 0, bases_ - 1);
  if (width == 0 || exponents.size() % width != 0) {
    throw std::invalid_argument("got " + std::to_string(exponents.size()) +
                                " exponent bytes; want a multiple of the width, " +
                                std::to_string(width));
  }
  const std::size_t count = exponents.size() / width;
  Limb beyond = 0;  // over all exponents, so that the time does not tell which
  for (std::size_t i = 0; i < count; ++i) {
    beyond |= bits_beyond(exponents.data() + i * width, width, exponent_bits_);
  }
  if (beyond != 0) {
    throw std::invalid_argument("got an exponent of more than " + std::to_string(exponent_bits_) +
                                " bits, the length the table was made for");
  }
  return count;
}

Residues FixedBaseTable::power_secret(const ByteVector& exponents, std::size_t width,
                                      std::size_t base, int threads) const {
  const std::size_t entries = std::size_t{1} << window_bits_;
  Residues result(modulus_, count_exponents(exponents, width, base));
  for_each_group(*modulus_, result.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb *power = arithmetic.temporary(0), *factor = arithmetic.temporary(1);
                   arithmetic.set_one(power);
                   for (std::size_t w = 0; w < windows_; ++w) {
                     alignas(64) Limb index[kMaxLanes] = {};
                     for (std::size_t lane = 0; lane < count; ++lane) {
                       index[lane] = bits_at(exponents.data() + (first + lane) * width, width,
                                             w * window_bits_, window_bits_);
                     }
                     arithmetic.select(factor, window_table(base, w), entries, index);
                     arithmetic.multiply(power, power, factor);
                     wipe(index, sizeof index);
                   }
                   result.store(arithmetic, first, power, count);
                 });
  return result;
}

Residues FixedBaseTable::power_vartime(const ByteVector& exponents, std::size_t width,
                                       std::size_t base, int threads) const {
  Residues result(modulus_, count_exponents(exponents, width, base));
  ProductLists lists(modulus_);
  for (std::size_t i = 0; i < result.count(); ++i) {
    for (std::size_t w = 0; w < windows_; ++w) {
      const Limb index =
          bits_at(exponents.data() + i * width, width, w * window_bits_, window_bits_);
      if (index != 0) lists.append(window_table(base, w) + index * modulus_->limbs());
    }
    lists.finish(result.row(i));
  }
  std::move(lists).multiply(threads);
  return result;
}

ProductTable::ProductTable(const ModulusPointer& modulus, const Residues& bases,
                           std::size_t digit_bits, int threads)
    : modulus_(modulus), bases_(bases.count()), digit_bits_(digit_bits) {
  require_same_modulus(*modulus, *bases.modulus());
  require_between("digit_bits", digit_bits, 1, 8);
  const std::size_t limbs = modulus_->limbs(), entries = std::size_t{1} << digit_bits;
  table_.resize(table_limbs(bases_, entries, limbs));
  fill_tables(table_, bases, entries, threads);
}

Residues ProductTable::products_vartime(const ByteVector& digits, std::size_t count,
                                        int threads) const {
  const std::size_t limbs = modulus_->limbs(), entries = std::size_t{1} << digit_bits_;
  for (const std::uint8_t digit : digits) {
    if (digit >= entries) {
      throw std::invalid_argument("got a digit of more than " + std::to_string(digit_bits_) +
                                  " bits, the width the table was made for");
    }
  }
  Residues result(modulus_, count);
  ProductLists lists(modulus_);
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t i = 0; i < bases_; ++i) {
      const std::size_t digit = digits[row * bases_ + i];
      if (digit != 0) lists.append(table_.data() + (i * entries + digit) * limbs);
    }
    lists.finish(result.row(row));
  }
  std::move(lists).multiply(threads);
  return result;
}

}  // namespace colonnade
