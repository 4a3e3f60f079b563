// Work on a range of independent items, split over threads that live for one call.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace colonnade {

// Calls body(begin, end) on pieces that cover [0, count) once; inline where threads <= 1. Pieces
// are taken as threads become free, so uneven items balance. Rethrows the first exception.
template <class Body>
void parallel_for(std::size_t count, int threads, const Body& body) {
  constexpr std::size_t kPiecesPerThread = 4;
  const std::size_t workers = std::min<std::size_t>(threads > 1 ? threads : 1, count);
  if (workers <= 1) {
    if (count > 0) body(std::size_t{0}, count);
    return;
  }
  const std::size_t piece = std::max<std::size_t>(1, count / (workers * kPiecesPerThread));
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;

  const auto work = [&] {
    try {
      for (;;) {
        const std::size_t begin = next.fetch_add(piece);
        if (begin >= count) return;
        body(begin, std::min(count, begin + piece));
      }
    } catch (...) {
      const std::lock_guard<std::mutex> guard(failure_lock);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };

  struct JoinAll {
    std::vector<std::thread> threads;
    ~JoinAll() {
      for (std::thread& thread : threads) thread.join();
    }
  };
  {
    JoinAll pool;
    pool.threads.reserve(workers - 1);
    try {
      while (pool.threads.size() + 1 < workers) pool.threads.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: those that started, and this one, do the work.
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace colonnade
