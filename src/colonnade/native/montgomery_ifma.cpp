// Eight numbers at a time on processors with AVX-512 IFMA.
//
// Compiled with flags of its own, and only run where cpu_features() found AVX-512 IFMA.
#if defined(__x86_64__)

#include <immintrin.h>

#include "montgomery_ifma.h"

namespace colonnade {
namespace {

struct Avx512 {
  using Vector = __m512i;
  using Mask = __mmask8;

  static COLONNADE_INLINE Vector load(const Limb* a) { return _mm512_load_si512(a); }
  static COLONNADE_INLINE void store(Limb* a, Vector x) { _mm512_store_si512(a, x); }
  static COLONNADE_INLINE Vector setzero() { return _mm512_setzero_si512(); }
  static COLONNADE_INLINE Vector set1(Limb x) {
    return _mm512_set1_epi64(static_cast<long long>(x));
  }
  // The lowest lane first.
  static COLONNADE_INLINE Vector set(Limb a, Limb b, Limb c, Limb d, Limb e, Limb f, Limb g,
                                     Limb h) {
    using Word = long long;
    return _mm512_set_epi64(Word(h), Word(g), Word(f), Word(e), Word(d), Word(c), Word(b), Word(a));
  }
  static COLONNADE_INLINE Vector add(Vector a, Vector b) { return _mm512_add_epi64(a, b); }
  static COLONNADE_INLINE Vector bit_and(Vector a, Vector b) { return _mm512_and_si512(a, b); }
  static COLONNADE_INLINE Vector bit_or(Vector a, Vector b) { return _mm512_or_si512(a, b); }
  template <unsigned kBits>
  static COLONNADE_INLINE Vector srli(Vector a) {
    // With a mask: without, GCC warns of an operand that its own header leaves undefined.
    return _mm512_maskz_srli_epi64(static_cast<Mask>(-1), a, kBits);
  }
  static COLONNADE_INLINE Mask cmpeq_mask(Vector a, Vector b) {
    return _mm512_cmpeq_epi64_mask(a, b);
  }
  static COLONNADE_INLINE Vector maskz_mov(Mask mask, Vector a) {
    return _mm512_maskz_mov_epi64(mask, a);
  }
  static COLONNADE_INLINE Vector madd52lo(Vector sum, Vector a, Vector b) {
    return _mm512_madd52lo_epu64(sum, a, b);
  }
  static COLONNADE_INLINE Vector madd52hi(Vector sum, Vector a, Vector b) {
    return _mm512_madd52hi_epu64(sum, a, b);
  }
};

}  // namespace

const Kernel& ifma_kernel() {
  static const Kernel kernel = lane_kernel<Ifma8<Avx512>>("ifma");
  return kernel;
}

}  // namespace colonnade

#endif
