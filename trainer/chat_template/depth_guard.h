// Counts how deep a renderer is in its own recursion.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_DEPTH_GUARD_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_DEPTH_GUARD_H_

namespace gantry {

// One level deeper while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_DEPTH_GUARD_H_
