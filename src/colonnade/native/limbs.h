// Numbers as rows of 64-bit limbs, least significant first, in memory that is wiped when freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace colonnade {

using Limb = std::uint64_t;
using WideLimb = unsigned __int128;

constexpr std::size_t kLimbBits = 64;
constexpr std::size_t kLimbBytes = 8;
constexpr std::size_t kMaxModulusBits = 8192;
constexpr std::size_t kMinModulusBits = 64;

// Rows are padded to a multiple of this many limbs, so that kernels need no odd-sized tails.
constexpr std::size_t kBlockLimbs = 4;

// a * b for sizes of memory. Throws std::bad_alloc where that does not fit a size_t.
inline std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw std::bad_alloc();
  return product;
}

// Overwrites memory in a way the optimiser may not drop.
inline void wipe(void* data, std::size_t size) {
  std::memset(data, 0, size);
  __asm__ __volatile__("" : : "r"(data) : "memory");
}

// Every buffer is wiped: that costs less than deciding which of them held a secret.
template <class T>
struct WipingAllocator {
  using value_type = T;
  static constexpr std::align_val_t kCacheLine{64};

  WipingAllocator() = default;
  template <class U>
  WipingAllocator(const WipingAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(checked_product(count, sizeof(T)), kCacheLine));
  }
  void deallocate(T* data, std::size_t count) {
    wipe(data, count * sizeof(T));
    ::operator delete(data, kCacheLine);
  }
  bool operator==(const WipingAllocator&) const { return true; }
  bool operator!=(const WipingAllocator&) const { return false; }
};

using LimbVector = std::vector<Limb, WipingAllocator<Limb>>;
using ByteVector = std::vector<std::uint8_t, WipingAllocator<std::uint8_t>>;

// Hides a value from the optimiser, so that a mask does not become a branch.
inline Limb opaque(Limb value) {
  __asm__("" : "+r"(value));
  return value;
}

// All ones where a == b, else zero; no branch.
inline Limb equal_mask(Limb a, Limb b) {
  const Limb x = a ^ b;
  return opaque(((x | (Limb{0} - x)) >> 63) - 1);
}

// r = a - b, returns the borrow (0 or 1); r may be a or b.
inline Limb subtract(Limb* r, const Limb* a, const Limb* b, std::size_t limbs) {
  Limb borrow = 0;
  for (std::size_t i = 0; i < limbs; ++i) {
    const WideLimb x = static_cast<WideLimb>(a[i]) - b[i] - borrow;
    r[i] = static_cast<Limb>(x);
    borrow = static_cast<Limb>(x >> 64) & 1;
  }
  return borrow;
}

// r = mask ? a : b for a mask of all ones or zero; r may be a or b.
inline void select(Limb* r, Limb mask, const Limb* a, const Limb* b, std::size_t limbs) {
  mask = opaque(mask);
  for (std::size_t i = 0; i < limbs; ++i) r[i] = (a[i] & mask) | (b[i] & ~mask);
}

inline void copy(Limb* r, const Limb* a, std::size_t limbs) {
  std::memcpy(r, a, limbs * kLimbBytes);
}

inline void load_little_endian(Limb* r, std::size_t limbs, const std::uint8_t* data,
                               std::size_t size) {
  for (std::size_t i = 0; i < limbs; ++i) r[i] = 0;
  for (std::size_t i = 0; i < size; ++i) r[i / 8] |= static_cast<Limb>(data[i]) << (8 * (i % 8));
}

inline void store_little_endian(std::uint8_t* data, std::size_t size, const Limb* a) {
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<std::uint8_t>(a[i / 8] >> (8 * (i % 8)));
  }
}

// Words of 64 bits into limbs of `limb_bits`, and back; what does not fit must be zero.
inline void split_words(Limb* limbs, std::size_t count, std::size_t limb_bits, const Limb* words,
                        std::size_t word_count) {
  const Limb mask = ~Limb{0} >> (kLimbBits - limb_bits);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t word = i * limb_bits / kLimbBits, shift = i * limb_bits % kLimbBits;
    Limb x = word < word_count ? words[word] >> shift : 0;
    if (shift > 0 && word + 1 < word_count) x |= words[word + 1] << (kLimbBits - shift);
    limbs[i] = x & mask;
  }
}

inline void join_limbs(Limb* words, std::size_t word_count, const Limb* limbs, std::size_t count,
                       std::size_t limb_bits) {
  std::memset(words, 0, word_count * kLimbBytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t word = i * limb_bits / kLimbBits, shift = i * limb_bits % kLimbBits;
    if (word < word_count) words[word] |= limbs[i] << shift;
    if (shift > 0 && word + 1 < word_count) words[word + 1] |= limbs[i] >> (kLimbBits - shift);
  }
}

inline std::size_t bit_length(Limb value) {
  return value == 0 ? 0 : kLimbBits - static_cast<std::size_t>(__builtin_clzll(value));
}

}  // namespace colonnade
