// An odd modulus with its Montgomery constants, and one worker's arithmetic modulo it.
#pragma once

#include <algorithm>
#include <memory>

#include "kernel.h"
#include "parallel.h"

namespace colonnade {

class Modulus;
using ModulusPointer = std::shared_ptr<Modulus>;

class Modulus {
 public:
  // `data` is n, least significant byte first. Throws std::invalid_argument unless n is odd and
  // has kMinModulusBits to kMaxModulusBits bits.
  Modulus(const std::uint8_t* data, std::size_t size, const Kernel& kernel);

  const Kernel& kernel() const { return kernel_; }
  std::size_t bits() const { return bits_; }
  std::size_t byte_width() const { return (bits_ + 7) / 8; }

  // n as plain words of 64 bits.
  std::size_t words() const { return n_words_.size(); }
  const Limb* n_words() const { return n_words_.data(); }

  // In limbs of the kernel; R mod n is the number one.
  std::size_t limbs() const { return n_.size(); }
  const Limb* one() const { return one_.data(); }
  MontgomeryConstants constants() const {
    return {n_.data(), minus_n_inverse_, n_.size(), prepared_.data()};
  }
  // Those a number is multiplied by to enter and to leave Montgomery form, in every lane.
  const Limb* r_squared_group() const { return r_squared_group_.data(); }
  const Limb* plain_one_group() const { return plain_one_group_.data(); }

  // The same n with a kernel of one lane, for what keeps most lanes empty; null where it would be
  // no other.
  const ModulusPointer& one_lane() const { return one_lane_; }

  bool operator==(const Modulus& other) const {
    return this == &other || (&kernel_ == &other.kernel_ && n_words_ == other.n_words_);
  }

 private:
  LimbVector power_of_two(std::size_t e) const;  // 2^e mod n in words; for kernels of one lane
  LimbVector group_of(const LimbVector& words) const;
  void double_modulo(Limb* x) const;

  const Kernel& kernel_;
  std::size_t bits_ = 0;
  LimbVector n_words_, n_;
  Limb minus_n_inverse_ = 0;
  LimbVector prepared_, one_, r_squared_group_, plain_one_group_;
  ModulusPointer one_lane_;
};

// A kernel bound to a modulus and to scratch memory: one for each thread. Numbers are groups.
class Multiplier {
 public:
  static constexpr std::size_t kTemporaries = 3;

  explicit Multiplier(const Modulus& modulus)
      : modulus_(modulus),
        kernel_(modulus.kernel()),
        constants_(modulus.constants()),
        scratch_(kernel_.scratch_limbs(constants_.limbs)),
        temporaries_((kTemporaries + 1) * group_limbs()) {}

  std::size_t lanes() const { return kernel_.lanes; }
  std::size_t limbs() const { return constants_.limbs; }  // of a row
  std::size_t group_limbs() const { return kernel_.lanes * constants_.limbs; }
  // Room for a group, for the caller's use.
  Limb* temporary(std::size_t i) { return temporaries_.data() + i * group_limbs(); }

  void multiply(Limb* r, const Limb* a, const Limb* b) {
    kernel_.multiply(r, a, b, constants_, scratch_.data());
  }
  void square(Limb* r, const Limb* a) { kernel_.square(r, a, constants_, scratch_.data()); }
  void square_in_place(Limb* r, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) square(r, r);
  }
  // Plain to Montgomery form (a * R mod n), and back.
  void enter(Limb* r, const Limb* a) { multiply(r, a, modulus_.r_squared_group()); }
  void leave(Limb* r, const Limb* a) { multiply(r, a, modulus_.plain_one_group()); }

  // One row for each lane.
  void load(Limb* group, const Limb* const* rows) const {
    kernel_.load(group, rows, constants_.limbs);
  }
  // `count` rows, `step` limbs apart; the lanes left over take the first row.
  void load(Limb* group, const Limb* first, std::size_t count, std::size_t step) const {
    const Limb* rows[kMaxLanes];
    for (std::size_t lane = 0; lane < lanes(); ++lane) {
      rows[lane] = first + (lane < count ? lane * step : 0);
    }
    load(group, rows);
  }
  void set_one(Limb* group) const { load(group, modulus_.one(), 1, 0); }
  void store(Limb* const* rows, const Limb* group) const {
    kernel_.store(rows, group, constants_.limbs);
  }
  // The first `count` lanes, to rows `step` limbs apart.
  void store(Limb* first, const Limb* group, std::size_t count, std::size_t step) {
    Limb* rows[kMaxLanes];
    for (std::size_t lane = 0; lane < lanes(); ++lane) {
      rows[lane] = lane < count ? first + lane * step : temporary(kTemporaries);
    }
    store(rows, group);
  }

  // Masked reads of `count` entries: rows with an index for each lane, or groups with one.
  void select(Limb* group, const Limb* table, std::size_t count, const Limb* index) const {
    kernel_.select(group, table, count, constants_.limbs, index);
  }
  void select_group(Limb* group, const Limb* table, std::size_t count, Limb index) const {
    kernel_.select_group(group, table, count, constants_.limbs, index);
  }

 private:
  const Modulus& modulus_;
  const Kernel& kernel_;
  MontgomeryConstants constants_;
  LimbVector scratch_, temporaries_;
};

// Splits `count` items over threads, as many at a time as there are lanes. Calls
// body(arithmetic, first, size) for items first to first + size.
template <class Body>
void for_each_group(const Modulus& modulus, std::size_t count, int threads, const Body& body) {
  const std::size_t lanes = modulus.kernel().lanes;
  parallel_for(count / lanes + (count % lanes != 0), threads,
               [&](std::size_t begin, std::size_t end) {
                 Multiplier arithmetic(modulus);
                 for (std::size_t i = begin; i < end; ++i) {
                   body(arithmetic, i * lanes, std::min(lanes, count - i * lanes));
                 }
               });
}

// A product under construction, the same way in all lanes. Starts as one without paying a
// multiplication for it.
class Product {
 public:
  Product(Multiplier& arithmetic, Limb* value) : arithmetic_(arithmetic), value_(value) {}

  void multiply(const Limb* factor) {
    if (is_one_) {
      copy(value_, factor, arithmetic_.group_limbs());
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
