#include "residues.h"

#include <stdexcept>
#include <string>

#include "inverse.h"
#include "parallel.h"

namespace colonnade {

void require_same_modulus(const Modulus& a, const Modulus& b) {
  if (!(a == b)) throw std::invalid_argument("got numbers of two moduli; want one modulus");
}

Residues Residues::ones(const ModulusPointer& modulus, std::size_t count) {
  Residues result(modulus, count);
  for (std::size_t i = 0; i < count; ++i) copy(result.row(i), modulus->one(), modulus->limbs());
  return result;
}

Residues Residues::from_bytes(const ModulusPointer& modulus, const std::uint8_t* data,
                              std::size_t size, int threads) {
  const std::size_t width = modulus->byte_width(), words = modulus->words();
  if (size % width != 0) {
    throw std::invalid_argument("got " + std::to_string(size) + " bytes; want a multiple of " +
                                std::to_string(width) + ", the width of the modulus");
  }
  Residues result(modulus, size / width);
  std::atomic<std::size_t> first_bad{result.count()};
  const auto load = [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
    LimbVector number(words), difference(words);
    for (std::size_t i = first; i < first + count; ++i) {
      load_little_endian(number.data(), words, data + i * width, width);
      if (subtract(difference.data(), number.data(), modulus->n_words(), words) == 0) {
        std::size_t seen = first_bad.load();
        while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
        }
      }
      split_words(result.row(i), modulus->limbs(), modulus->kernel().limb_bits, number.data(),
                  words);
    }
    result.enter(arithmetic, first, count);
  };
  for_each_group(*modulus, result.count(), threads, load);
  if (first_bad < result.count()) {
    throw std::invalid_argument("number " + std::to_string(first_bad.load()) +
                                " is not below the modulus");
  }
  return result;
}

void Residues::enter(Multiplier& arithmetic, std::size_t first, std::size_t count) {
  Limb* group = arithmetic.temporary(0);
  load(arithmetic, group, first, count);
  arithmetic.enter(group, group);
  store(arithmetic, first, group, count);
}

template <class Use>
void Residues::each_plain(int threads, const Use& use) const {
  const std::size_t words = modulus_->words(), limbs = modulus_->limbs();
  const auto leave = [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
    Limb *group = arithmetic.temporary(0), *rows = arithmetic.temporary(1);
    load(arithmetic, group, first, count);
    arithmetic.leave(group, group);
    arithmetic.store(rows, group, count, limbs);
    LimbVector number(words), less(words);
    for (std::size_t i = 0; i < count; ++i) {
      join_limbs(number.data(), words, rows + i * limbs, limbs, modulus_->kernel().limb_bits);
      // At most n, where an n stands for zero.
      const Limb borrow = subtract(less.data(), number.data(), modulus_->n_words(), words);
      select(number.data(), Limb{0} - borrow, number.data(), less.data(), words);
      use(first + i, number.data());
    }
  };
  for_each_group(*modulus_, count_, threads, leave);
}

void Residues::to_bytes(std::uint8_t* data, int threads) const {
  const std::size_t width = modulus_->byte_width();
  each_plain(threads, [&](std::size_t i, const Limb* number) {
    store_little_endian(data + i * width, width, number);
  });
}

Residues Residues::with(const ModulusPointer& modulus, int threads) const {
  Residues result(modulus, count_);
  each_plain(threads, [&](std::size_t i, const Limb* number) {
    split_words(result.row(i), modulus->limbs(), modulus->kernel().limb_bits, number,
                modulus->words());
  });
  for_each_group(*modulus, count_, threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   result.enter(arithmetic, first, count);
                 });
  return result;
}

Residues Residues::take(const std::int64_t* indices, std::size_t count) const {
  Residues result(modulus_, count);
  for (std::size_t i = 0; i < count; ++i) {
    // One comparison refuses negative ones too.
    if (static_cast<std::uint64_t>(indices[i]) >= count_) {
      throw std::invalid_argument("got index " + std::to_string(indices[i]) + "; want 0 to " +
                                  std::to_string(count_) + " exclusive");
    }
    copy(result.row(i), row(static_cast<std::size_t>(indices[i])), modulus_->limbs());
  }
  return result;
}

Residues Residues::slice(std::size_t begin, std::size_t end) const {
  Residues result(modulus_, end - begin);
  if (end > begin) copy(result.row(0), row(begin), (end - begin) * modulus_->limbs());
  return result;
}

Residues Residues::concat(const std::vector<const Residues*>& parts) {
  if (parts.empty()) throw std::invalid_argument("got no batches; want at least one");
  std::size_t count = 0;
  for (const Residues* part : parts) {
    require_same_modulus(*parts.front()->modulus(), *part->modulus());
    count += part->count();
  }
  Residues result(parts.front()->modulus(), count);
  std::size_t at = 0;
  for (const Residues* part : parts) {
    if (part->count() > 0) {
      copy(result.row(at), part->row(0), part->count() * part->modulus()->limbs());
    }
    at += part->count();
  }
  return result;
}

Residues multiply(const Residues& a, const Residues& b, int threads) {
  require_same_modulus(*a.modulus(), *b.modulus());
  if (a.count() != b.count() && a.count() != 1 && b.count() != 1) {
    throw std::invalid_argument("got " + std::to_string(a.count()) + " and " +
                                std::to_string(b.count()) +
                                " numbers; want equal counts, or one number on a side");
  }
  const std::size_t limbs = a.modulus()->limbs();
  const std::size_t a_step = a.count() == 1 ? 0 : limbs, b_step = b.count() == 1 ? 0 : limbs;
  Residues result(a.modulus(), a.count() == 1 ? b.count() : a.count());
  for_each_group(*a.modulus(), result.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb *x = arithmetic.temporary(0), *y = arithmetic.temporary(1);
                   arithmetic.load(x, a.row(0) + first * a_step, count, a_step);
                   arithmetic.load(y, b.row(0) + first * b_step, count, b_step);
                   arithmetic.multiply(x, x, y);
                   result.store(arithmetic, first, x, count);
                 });
  return result;
}

namespace {

Residues square_groups(const Residues& a, std::size_t times, int threads) {
  Residues result(a.modulus(), a.count());
  for_each_group(*a.modulus(), a.count(), threads,
                 [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
                   Limb* x = arithmetic.temporary(0);
                   a.load(arithmetic, x, first, count);
                   arithmetic.square_in_place(x, times);
                   result.store(arithmetic, first, x, count);
                 });
  return result;
}

Residues pack_groups(const Residues& a, std::size_t group, std::size_t shift, int threads) {
  Residues result(a.modulus(), a.count() / group + (a.count() % group != 0));
  for_each_group(
      *a.modulus(), result.count(), threads,
      [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
        Product product(arithmetic, arithmetic.temporary(0));
        const Limb* rows[kMaxLanes];
        for (std::size_t j = std::min(a.count() - first * group, group); j-- > 0;) {
          product.square(shift);
          // The last run may end before the others: ones stand for what it lacks.
          for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
            const std::size_t i = (first + (lane < count ? lane : 0)) * group + j;
            rows[lane] = i < a.count() ? a.row(i) : a.modulus()->one();
          }
          arithmetic.load(arithmetic.temporary(1), rows);
          product.multiply(arithmetic.temporary(1));
        }
        result.store(arithmetic, first, arithmetic.temporary(0), count);
      });
  return result;
}

}  // namespace

Residues square_times(const Residues& a, std::size_t times, int threads) {
  // The kernel of one lane has to gain what it costs to enter its form.
  constexpr std::size_t kManySquarings = 16;
  if (times < kManySquarings) return square_groups(a, times, threads);
  return apart_from_few_items(
      a, 1, threads, [&](const Residues& part) { return square_groups(part, times, threads); });
}

Residues horner_pack(const Residues& a, std::size_t group, std::size_t shift, int threads) {
  if (group == 0) throw std::invalid_argument("got a group of 0 numbers; want 1 or more");
  return apart_from_few_items(a, group, threads, [&](const Residues& part) {
    return pack_groups(part, group, shift, threads);
  });
}

}  // namespace colonnade
