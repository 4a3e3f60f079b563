// A batch of numbers modulo n in Montgomery form, and the operations on whole batches.
//
// Everything here throws std::invalid_argument with a text for the caller, takes the number of
// threads last, and gives the same bytes for any number of threads and any kernel.
#pragma once

#include <optional>

#include "modulus.h"

namespace colonnade {

class Residues {
 public:
  Residues(ModulusPointer modulus, std::size_t count)
      : modulus_(std::move(modulus)),
        count_(count),
        limbs_(allocate(checked_product(count, modulus_->limbs()))) {}

  const ModulusPointer& modulus() const { return modulus_; }
  std::size_t count() const { return count_; }
  Limb* row(std::size_t i) { return limbs_.data() + i * modulus_->limbs(); }
  const Limb* row(std::size_t i) const { return limbs_.data() + i * modulus_->limbs(); }
  // The rows from i on, as many as arithmetic has lanes or fewer, as a group; and back.
  void load(Multiplier& arithmetic, Limb* group, std::size_t i, std::size_t count) const {
    arithmetic.load(group, row(i), count, modulus_->limbs());
  }
  void store(Multiplier& arithmetic, std::size_t i, const Limb* group, std::size_t count) {
    arithmetic.store(row(i), group, count, modulus_->limbs());
  }

  static Residues ones(const ModulusPointer& modulus, std::size_t count);
  // `data`: a whole number of rows of byte_width() bytes, each below n.
  static Residues from_bytes(const ModulusPointer& modulus, const std::uint8_t* data,
                             std::size_t size, int threads);
  // `data` has room for count() * byte_width() bytes.
  void to_bytes(std::uint8_t* data, int threads) const;
  // The same numbers for another kernel's modulus of the same n.
  Residues with(const ModulusPointer& modulus, int threads) const;
  Residues take(const std::int64_t* indices, std::size_t count) const;
  Residues slice(std::size_t begin, std::size_t end) const;
  static Residues concat(const std::vector<const Residues*>& parts);

 private:
  // Plain rows to Montgomery form, in place.
  void enter(Multiplier& arithmetic, std::size_t first, std::size_t count);
  // Calls use(i, words) with each number in plain words, below n.
  template <class Use>
  void each_plain(int threads, const Use& use) const;

  // std::vector calls what no allocator could give a length error; it is lack of memory.
  static LimbVector allocate(std::size_t limbs) {
    if (limbs > LimbVector().max_size()) throw std::bad_alloc();
    return LimbVector(limbs);
  }

  ModulusPointer modulus_;
  std::size_t count_;
  LimbVector limbs_;
};

void require_same_modulus(const Modulus& a, const Modulus& b);

// operation(a), which treats a as items of `size` numbers, the last one perhaps shorter, and gives
// as many numbers for each. Lanes times threads items make a round; where the last round has no
// more items than threads, they go to the kernel of one lane, which is faster then.
template <class Operation>
Residues apart_from_few_items(const Residues& a, std::size_t size, int threads,
                              const Operation& operation) {
  const ModulusPointer &modulus = a.modulus(), &one_lane = modulus->one_lane();
  const std::size_t workers = threads > 1 ? static_cast<std::size_t>(threads) : 1;
  const std::size_t items = a.count() / size + (a.count() % size != 0);
  const std::size_t few = items % (modulus->kernel().lanes * workers);
  if (!one_lane || few == 0 || few > workers) return operation(a);
  const std::size_t split = (items - few) * size;
  const Residues last =
      operation(a.slice(split, a.count()).with(one_lane, threads)).with(modulus, threads);
  if (split == 0) return last;
  const Residues others = operation(a.slice(0, split));
  return Residues::concat({&others, &last});
}

// Elementwise product; a batch of one number meets every number of the other.
Residues multiply(const Residues& a, const Residues& b, int threads);

// a^(2^times).
Residues square_times(const Residues& a, std::size_t times, int threads);

// 1/a, by one inversion and three multiplications a number (Montgomery's trick); variable time.
// try_invert gives nothing, and invert throws with the first place, where a number has no inverse.
std::optional<Residues> try_invert(const Residues& a, int threads);
Residues invert(const Residues& a, int threads);

// Product over j of a[i * group + j]^(2^(shift * j)), for each run i of `group` numbers.
Residues horner_pack(const Residues& a, std::size_t group, std::size_t shift, int threads);

// a^exponent for one secret exponent of `bits` public bits, in a time that depends on neither.
Residues pow_secret(const Residues& a, const ByteVector& exponent, std::size_t bits, int threads);

// a[i]^exponents[i], little-endian exponents of `width` bytes, or a single one for all.
Residues pow_vartime(const Residues& a, const ByteVector& exponents, std::size_t width,
                     int threads);

}  // namespace colonnade
