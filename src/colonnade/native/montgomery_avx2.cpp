// Four numbers at a time with AVX2 and FMA: 52-bit products from double-precision arithmetic.
//
// Rounding towards zero, a * b + 2^104 has floor(a * b / 2^52) as its mantissa, and what it drops
// is a * b minus that, which a second fused step gives exactly. Sums take the bit patterns of both
// as integers; the exponents in them are constants and start each column off.
// Source: N. Emmart, F. Zheng, C. Weems, "Faster modular exponentiation using double precision
// floating point arithmetic on the GPU" (ARITH 2018). No value is denormal: the time is constant.
//
// Compiled with flags of its own, and only run where cpu_features() found AVX2 and FMA.
#if defined(__x86_64__)

#include <immintrin.h>

#include "lane_kernel.h"

namespace colonnade {
namespace {

struct Fma4 {
  using Sum = __m256i;
  using Factor = __m256d;
  static constexpr std::size_t kLanes = 4, kBlock = 4;
  static constexpr Limb kLowBias = Limb{0x433} << 52, kHighBias = Limb{0x467} << 52;

  // Rounding towards zero, and no exception interrupts.
  class Scope {
   public:
    Scope() : before_(_mm_getcsr()) { _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_TOWARD_ZERO); }
    ~Scope() { _mm_setcsr(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    unsigned before_;
  };

  static COLONNADE_INLINE Sum load(const Limb* a) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(a));
  }
  static COLONNADE_INLINE void store(Limb* a, Sum x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(a), x);
  }
  static COLONNADE_INLINE Factor load_factor(const Limb* a) {
    return _mm256_castsi256_pd(load(a));
  }
  static COLONNADE_INLINE void store_factor(Limb* a, Factor x) {
    store(a, _mm256_castpd_si256(x));
  }

  static COLONNADE_INLINE Sum zero() { return _mm256_setzero_si256(); }
  static COLONNADE_INLINE Sum add(Sum a, Sum b) { return _mm256_add_epi64(a, b); }
  static COLONNADE_INLINE Sum double_of(Sum a) { return _mm256_add_epi64(a, a); }
  static COLONNADE_INLINE Sum low_limb(Sum a) {
    return bit_and(a, broadcast(kLaneLimbMask));
  }
  static COLONNADE_INLINE Sum carry_of(Sum a) { return _mm256_srli_epi64(a, kLaneLimbBits); }

  static COLONNADE_INLINE Sum gather(const Limb* const* rows, std::size_t i) {
    const auto limb = [&](std::size_t lane) { return static_cast<long long>(rows[lane][i]); };
    return _mm256_set_epi64x(limb(3), limb(2), limb(1), limb(0));
  }
  static COLONNADE_INLINE Sum broadcast(Limb x) {
    return _mm256_set1_epi64x(static_cast<long long>(x));
  }
  static COLONNADE_INLINE Sum equal_mask(Sum a, Sum b) { return _mm256_cmpeq_epi64(a, b); }
  static COLONNADE_INLINE Sum bit_and(Sum a, Sum b) { return _mm256_and_si256(a, b); }
  static COLONNADE_INLINE Sum bit_or(Sum a, Sum b) { return _mm256_or_si256(a, b); }

  static COLONNADE_INLINE Factor two_to_52() { return _mm256_set1_pd(0x1p52); }
  static COLONNADE_INLINE Factor two_to_104() { return _mm256_set1_pd(0x1p104); }

  static COLONNADE_INLINE Factor factor_of(Sum limb) {
    const Sum biased = _mm256_or_si256(limb, _mm256_castpd_si256(two_to_52()));
    return _mm256_sub_pd(_mm256_castsi256_pd(biased), two_to_52());
  }
  static COLONNADE_INLINE Factor biased_high(Factor a, Factor b) {
    return _mm256_fmadd_pd(a, b, two_to_104());
  }
  static COLONNADE_INLINE Factor biased_low(Factor a, Factor b, Factor high) {
    return _mm256_fmadd_pd(a, b, _mm256_sub_pd(_mm256_set1_pd(0x1p104 + 0x1p52), high));
  }
  static COLONNADE_INLINE void add_low(Sum& low, Factor a, Factor b) {
    low = add(low, _mm256_castpd_si256(biased_low(a, b, biased_high(a, b))));
  }
  static COLONNADE_INLINE void add_high(Sum& high, Factor a, Factor b) {
    high = add(high, _mm256_castpd_si256(biased_high(a, b)));
  }
  static COLONNADE_INLINE void add_product(Sum& low, Sum& high, Factor a, Factor b) {
    const Factor h = biased_high(a, b);
    high = add(high, _mm256_castpd_si256(h));
    low = add(low, _mm256_castpd_si256(biased_low(a, b, h)));
    // Sums in another order would need more registers than there are.
    __asm__("" : "+x"(low), "+x"(high));
  }
  static COLONNADE_INLINE Factor quotient_of(Sum column, Factor b) {
    const Factor a = factor_of(low_limb(column));
    return _mm256_sub_pd(biased_low(a, b, biased_high(a, b)), two_to_52());
  }

  static COLONNADE_INLINE const Limb* prepare_factors(Limb* scratch, const Limb* a,
                                                      std::size_t limbs) {
    for (std::size_t i = 0; i < limbs * kLanes; i += kLanes) {
      store_factor(scratch + i, factor_of(load(a + i)));
    }
    return scratch;
  }
};

}  // namespace

const Kernel& avx2_kernel() {
  static const Kernel kernel = lane_kernel<Fma4>("avx2");
  return kernel;
}

}  // namespace colonnade

#endif
