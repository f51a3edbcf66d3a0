// References that one thread counts. An object that has none any more goes back to its pool, and keeps its memory.
#ifndef EMULATED_PTX_COUNTED_H_
#define EMULATED_PTX_COUNTED_H_

#include <stdint.h>

#include <memory>
#include <utility>
#include <vector>

namespace ptx {

template <class T>
class Pool;

// A T has recycle(), which lets go what it refers to.
template <class T>
struct Counted {
  uint32_t references = 0;
  Pool<T>* pool = nullptr;
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) { ++p->references; }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_ != nullptr) ++p_->references;
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_ != nullptr && --p_->references == 0) p_->pool->give(p_);
  }

  T* get() const { return p_; }
  T& operator*() const { return *p_; }
  T* operator->() const { return p_; }
  bool alone() const { return p_->references == 1; }
  friend bool operator==(const Ref& r, std::nullptr_t) { return r.p_ == nullptr; }
  friend bool operator!=(const Ref& r, std::nullptr_t) { return r.p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

template <class T>
class Pool {
 public:
  Ref<T> take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      all_.back()->pool = this;
      return Ref<T>(all_.back().get());
    }
    T* p = free_.back();
    free_.pop_back();
    return Ref<T>(p);
  }
  void give(T* p) {
    p->recycle();
    free_.push_back(p);
  }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace ptx

#endif  // EMULATED_PTX_COUNTED_H_
