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
  const std::size_t width = modulus->byte_width(), limbs = modulus->limbs();
  if (size % width != 0) {
    throw std::invalid_argument("got " + std::to_string(size) + " bytes; want a multiple of " +
                                std::to_string(width) + ", the width of the modulus");
  }
  Residues result(modulus, size / width);
  std::atomic<std::size_t> first_bad{result.count()};
  parallel_for(result.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*modulus);
    LimbVector difference(limbs);
    for (std::size_t i = begin; i < end; ++i) {
      load_little_endian(result.row(i), limbs, data + i * width, width);
      if (subtract(difference.data(), result.row(i), modulus->n(), limbs) == 0) {
        std::size_t seen = first_bad.load();
        while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
        }
        return;
      }
      arithmetic.enter(result.row(i), result.row(i));
    }
  });
  if (first_bad < result.count()) {
    throw std::invalid_argument("number " + std::to_string(first_bad.load()) +
                                " is not below the modulus");
  }
  return result;
}

void Residues::to_bytes(std::uint8_t* data, int threads) const {
  const std::size_t width = modulus_->byte_width();
  parallel_for(count_, threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*modulus_);
    LimbVector plain(modulus_->limbs());
    for (std::size_t i = begin; i < end; ++i) {
      arithmetic.leave(plain.data(), row(i));
      store_little_endian(data + i * width, width, plain.data());
    }
  });
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
  Residues result(a.modulus(), a.count() == 1 ? b.count() : a.count());
  const std::size_t a_step = a.count() == 1 ? 0 : 1, b_step = b.count() == 1 ? 0 : 1;
  parallel_for(result.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*a.modulus());
    for (std::size_t i = begin; i < end; ++i) {
      arithmetic.multiply(result.row(i), a.row(i * a_step), b.row(i * b_step));
    }
  });
  return result;
}

Residues square_times(const Residues& a, std::size_t times, int threads) {
  Residues result(a);
  parallel_for(a.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*a.modulus());
    for (std::size_t i = begin; i < end; ++i) arithmetic.square_in_place(result.row(i), times);
  });
  return result;
}

Residues horner_pack(const Residues& a, std::size_t group, std::size_t shift, int threads) {
  if (group == 0) throw std::invalid_argument("got a group of 0 numbers; want 1 or more");
  Residues result(a.modulus(), a.count() / group + (a.count() % group != 0));
  parallel_for(result.count(), threads, [&](std::size_t begin, std::size_t end) {
    Multiplier arithmetic(*a.modulus());
    for (std::size_t i = begin; i < end; ++i) {
      Product product(arithmetic, result.row(i));
      for (std::size_t j = std::min(a.count() - i * group, group); j-- > 0;) {
        product.square(shift);
        product.multiply(a.row(i * group + j));
      }
    }
  });
  return result;
}

}  // namespace colonnade
