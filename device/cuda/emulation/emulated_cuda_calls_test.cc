// Emulated GPUs by themselves: streams and events do what they say in every order that is drawn,
// and each kind of misuse is found, whatever the order.
#include "device/cuda/emulation/emulated_cuda_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/testing/status_matchers.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/stream_runner.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Bytes kSlot = 64_KiB;

class EmulatedCudaCallsTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { Create({.seed = GetParam(), .yields_max = 100}); }
  void TearDown() override { calls_.reset(); }

  void Create(const EmulatedGpuOptions& options) {
    calls_ = std::make_unique<EmulatedCudaCalls>(options);
    host_.assign(static_cast<size_t>(2 * kSlot.count() + 64), std::byte{0});
    auto* const memory = host_.data();
    const auto address = reinterpret_cast<uintptr_t>(memory);
    host_memory_ = memory + (64 - address % 64);
    if (options.devices == 0) return;
    Check(calls_->RegisterHost(host_memory_, 2 * kSlot));
    first_ = MakeStream();
    second_ = MakeStream();
  }
  static void Check(CudaError error) { GANTRY_CHECK_EQ(error, CudaError::kNone); }
  CudaStream MakeStream() {
    CudaStream stream = nullptr;
    Check(calls_->CreateStream(&stream));
    return stream;
  }
  CudaEvent MakeEvent(CudaCalls::EventKind kind = CudaCalls::EventKind::kOrder) {
    CudaEvent event;
    Check(calls_->CreateEvent(kind, &event));
    return event;
  }
  std::byte* Reserve(int64_t slots) {
    std::byte* address = nullptr;
    Check(calls_->ReserveAddresses(kSlot * slots, &address));
    return address;
  }
  CudaPhysicalMemory MakePhysical(Bytes bytes = kSlot) {
    CudaPhysicalMemory memory;
    Check(calls_->CreatePhysical(0, bytes, &memory));
    return memory;
  }
  // One slot at an address of its own.
  std::byte* MapOne() {
    std::byte* address = Reserve(1);
    Check(calls_->Map(address, kSlot, MakePhysical()));
    Check(calls_->SetAccess(0, address, kSlot));
    return address;
  }
  CudaError Up(std::byte* device, CudaStream stream, Bytes bytes = kSlot, int64_t offset = 0) {
    return calls_->CopyToDevice(
        {.destination = device, .source = host_memory_ + offset, .bytes = bytes}, stream);
  }
  CudaError Down(const std::byte* device, CudaStream stream, Bytes bytes = kSlot,
                 int64_t offset = 0) {
    return calls_->CopyToHost(
        {.destination = host_memory_ + offset, .source = device, .bytes = bytes}, stream);
  }
  static int Launch(CudaStream stream, std::function<void()> thread) {
    return static_cast<StreamRunner*>(stream)->Launch("Test", {.grid = {1}, .block = {1}},
                                                      std::move(thread));
  }
  void Order(CudaStream before, CudaStream after) {
    const CudaEvent event = MakeEvent();
    Check(calls_->RecordEvent(event, before));
    Check(calls_->WaitEvent(after, event));
    Check(calls_->DestroyEvent(event));  // allowed at once
  }
  void ExpectMisuse(const std::string& text) {
    Synchronize();
    EXPECT_THAT(calls_->misuse(), StatusIs(absl::StatusCode::kInternal, text));
  }
  void Synchronize() {
    static_cast<void>(calls_->SynchronizeStream(first_));
    static_cast<void>(calls_->SynchronizeStream(second_));
  }

  std::vector<std::byte> host_;
  std::byte* host_memory_ = nullptr;  // two slots, registered
  std::unique_ptr<EmulatedCudaCalls> calls_;
  CudaStream first_ = nullptr;
  CudaStream second_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Seeds, EmulatedCudaCallsTest, ::testing::Values(1, 2, 3, 4));

// ---- What works ----

TEST_P(EmulatedCudaCallsTest, AStreamWorksInOrder) {
  std::byte* device = MapOne();
  for (int i = 1; i <= 20; ++i) {
    ASSERT_EQ(Launch(first_,
                     [device, i] {
                       auto* word = reinterpret_cast<int*>(device);
                       *word = i == 1 ? 1 : *word * 2 + i;
                     }),
              0);
  }
  Check(Down(device, first_, Bytes(4)));
  Check(calls_->SynchronizeStream(first_));
  int expected = 0;
  for (int i = 1; i <= 20; ++i) expected = i == 1 ? 1 : expected * 2 + i;
  EXPECT_EQ(*reinterpret_cast<int*>(host_memory_), expected);
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, EventsOrderStreams) {
  std::byte* device = MapOne();
  for (int round = 0; round < 10; ++round) {
    std::fill_n(host_memory_, kSlot.count(), std::byte(round));
    Check(Up(device, first_));
    Order(first_, second_);
    ASSERT_EQ(Launch(second_, [device] { device[7] = std::byte{0xAB}; }), 0);
    Order(second_, first_);
    Check(Down(device, first_, kSlot, kSlot.count()));
    Check(calls_->SynchronizeStream(first_));
    EXPECT_EQ(host_memory_[kSlot.count() + 6], std::byte(round));
    EXPECT_EQ(host_memory_[kSlot.count() + 7], std::byte{0xAB});
  }
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, OnePhysicalMemoryIsSeenAtSeveralAddresses) {
  std::byte* addresses = Reserve(2);
  const CudaPhysicalMemory memory = MakePhysical();
  Check(calls_->Map(addresses, kSlot, memory));
  Check(calls_->Map(addresses + kSlot.count(), kSlot, memory));
  Check(calls_->SetAccess(0, addresses, kSlot * 2));
  std::fill_n(host_memory_, kSlot.count(), std::byte{5});
  Check(Up(addresses, first_));
  ASSERT_EQ(Launch(first_, [=] { addresses[kSlot.count() + 1] = addresses[kSlot.count()]; }), 0);
  Check(calls_->FillWithZeros(addresses, Bytes(1), first_));
  Check(Down(addresses + kSlot.count(), first_, Bytes(2)));
  Check(calls_->SynchronizeStream(first_));
  EXPECT_EQ(host_memory_[0], std::byte{0});
  EXPECT_EQ(host_memory_[1], std::byte{5});
  // Released while mapped: it goes with the last mapping.
  Check(calls_->ReleasePhysical(memory));
  const int64_t live = calls_->live();
  Check(calls_->Unmap(addresses, kSlot));
  EXPECT_EQ(calls_->live(), live - 1);
  Check(calls_->Unmap(addresses + kSlot.count(), kSlot));
  EXPECT_EQ(calls_->live(), live - 3);
  Check(calls_->FreeAddresses(addresses, kSlot * 2));
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, AskingAndTimingEvents) {
  std::byte* device = MapOne();
  const CudaEvent begin = MakeEvent(CudaCalls::EventKind::kTiming);
  const CudaEvent end = MakeEvent(CudaCalls::EventKind::kTiming);
  calls_->Hold();
  Check(calls_->RecordEvent(begin, first_));
  Check(Up(device, first_));
  Check(calls_->RecordEvent(end, first_));
  EXPECT_EQ(calls_->QueryEvent(end), CudaError::kNotReady);
  float milliseconds = -1;
  EXPECT_EQ(calls_->ElapsedTime(begin, end, &milliseconds), CudaError::kNotReady);
  calls_->Resume();
  Check(calls_->SynchronizeEvent(end));
  EXPECT_EQ(calls_->QueryEvent(end), CudaError::kNone);
  Check(calls_->ElapsedTime(begin, end, &milliseconds));
  EXPECT_GT(milliseconds, 0);
  Check(calls_->DestroyEvent(begin));
  Check(calls_->DestroyEvent(end));
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, WordsAreWrittenInStreamOrder) {
  std::byte* device = MapOne();
  auto* const word = reinterpret_cast<uint32_t*>(host_memory_ + kSlot.count());
  Check(Up(device, first_));
  Check(calls_->WriteWord(word, 17, first_));
  Check(calls_->SynchronizeStream(first_));
  EXPECT_EQ(*word, 17u);
}

TEST_P(EmulatedCudaCallsTest, AllocationsKnowTheirSizeAndMemoryIsCounted) {
  CudaMemoryInfo before;
  Check(calls_->MemoryInfo(&before));
  std::byte* device = nullptr;
  Check(calls_->Allocate(Bytes(100), &device));
  CudaMemoryInfo after;
  Check(calls_->MemoryInfo(&after));
  EXPECT_EQ(before.free - after.free, kSlot);
  Check(Up(device, first_, Bytes(100)));
  Check(calls_->SynchronizeStream(first_));
  EXPECT_EQ(Up(device, first_, Bytes(101)), CudaError::kInvalidValue);
  Check(calls_->Free(device));
  ExpectMisuse("touches byte 100 of an allocation of 100 bytes");
  EXPECT_EQ(calls_->Allocate(before.free + Bytes(1), &device), CudaError::kOutOfMemory);
}

TEST_P(EmulatedCudaCallsTest, EachThreadHasItsDevice) {
  Create({.devices = 2, .memory = 8_MiB, .seed = GetParam()});
  std::thread other([&] {
    Check(calls_->SetDevice(1));
    std::byte* device = nullptr;
    Check(calls_->Allocate(2_MiB, &device));
  });
  other.join();
  CudaMemoryInfo info;
  Check(calls_->MemoryInfo(&info));
  EXPECT_EQ(info.free, 8_MiB);
  Check(calls_->SetDevice(1));
  Check(calls_->MemoryInfo(&info));
  EXPECT_EQ(info.free, 6_MiB);
  EXPECT_EQ(calls_->SetDevice(2), CudaError::kInvalidDevice);
}

// ---- Memory that is not there ----

TEST_P(EmulatedCudaCallsTest, CopiesWhereNothingIsMapped) {
  std::byte* address = Reserve(2);
  EXPECT_EQ(Up(address, first_), CudaError::kInvalidValue);
  ExpectMisuse("copy of 64.0 KiB to the device touches byte 0 of a range of 131072 bytes");
}

TEST_P(EmulatedCudaCallsTest, CopiesPastTheEnd) {
  std::byte* address = Reserve(2);
  Check(calls_->Map(address, kSlot, MakePhysical()));
  Check(calls_->SetAccess(0, address, kSlot));
  EXPECT_EQ(Down(address + 1, first_), CudaError::kInvalidValue);
  ExpectMisuse("copy of 64.0 KiB to the host touches byte 65536 of a range of 131072 bytes");
}

TEST_P(EmulatedCudaCallsTest, CopiesWithoutAccess) {
  std::byte* address = Reserve(1);
  Check(calls_->Map(address, kSlot, MakePhysical()));
  EXPECT_EQ(calls_->FillWithZeros(address, Bytes(1), first_), CudaError::kInvalidValue);
  ExpectMisuse("to which device 0 has no access");
}

TEST_P(EmulatedCudaCallsTest, CopiesOfMemoryOfAnotherDevice) {
  Create({.devices = 2, .seed = GetParam()});
  std::byte* device = MapOne();
  Check(calls_->SetDevice(1));
  CudaStream other = MakeStream();
  EXPECT_EQ(Up(device, other), CudaError::kInvalidValue);
  ExpectMisuse("to which device 1 has no access");
}

TEST_P(EmulatedCudaCallsTest, CopiesOfHostMemoryThatIsNotRegistered) {
  std::byte* device = MapOne();
  EXPECT_EQ(Up(device, first_, kSlot, 2 * kSlot.count() - 8), CudaError::kInvalidValue);
  ExpectMisuse("touches host memory that is not registered as one: byte 8 of 65536");
}

TEST_P(EmulatedCudaCallsTest, CopiesThatSpanTwoRegistrations) {
  std::byte* device = MapOne();
  Check(calls_->UnregisterHost(host_memory_));
  Check(calls_->RegisterHost(host_memory_, kSlot));
  Check(calls_->RegisterHost(host_memory_ + kSlot.count(), kSlot));
  Check(Up(device, first_, kSlot, kSlot.count()));
  EXPECT_EQ(Up(device, first_, kSlot, 64), CudaError::kInvalidValue);
  ExpectMisuse("touches host memory that is not registered as one: byte 65472 of 65536");
}

TEST_P(EmulatedCudaCallsTest, KernelsThatReadWhatIsNotMapped) {
  std::byte* address = Reserve(2);
  Check(calls_->Map(address, kSlot, MakePhysical()));
  Check(calls_->SetAccess(0, address, kSlot));
  ASSERT_EQ(Launch(first_, [=] { address[0] = address[kSlot.count() + 3]; }), 0);
  EXPECT_EQ(calls_->SynchronizeStream(first_), CudaError::kIllegalAddress);
  ExpectMisuse("(kernel Test) on stream 1 reads byte 65539 of a range of 131072 bytes");
  // It stays.
  EXPECT_EQ(Up(address, first_), CudaError::kIllegalAddress);
  EXPECT_EQ(Launch(second_, [] {}), static_cast<int>(CudaError::kIllegalAddress));
}

TEST_P(EmulatedCudaCallsTest, KernelsThatWriteWhatWasUnmapped) {
  std::byte* device = MapOne();
  calls_->Hold();
  ASSERT_EQ(Launch(first_, [=] { device[1] = std::byte{1}; }), 0);
  Check(calls_->Unmap(device, kSlot));
  calls_->Resume();
  EXPECT_EQ(calls_->SynchronizeStream(first_), CudaError::kIllegalAddress);
  ExpectMisuse("writes byte 1 of a range of 65536 bytes");
}

TEST_P(EmulatedCudaCallsTest, KernelsThatTheEmulatorFindsWrong) {
  auto* const runner = static_cast<StreamRunner*>(first_);
  EXPECT_EQ(runner->Launch("Huge", {.grid = {1}, .block = {1025}}, [] {}),
            static_cast<int>(CudaError::kInvalidConfiguration));
  ExpectMisuse("Huge: no GPU runs");
}

TEST_P(EmulatedCudaCallsTest, HostCodeThatTouchesDeviceMemory) {
  std::byte* device = MapOne();
  EXPECT_DEATH(device[0] = std::byte{1}, "");
  // While a kernel runs it could; behind it, it cannot.
  ASSERT_EQ(Launch(first_, [device] { device[0] = std::byte{2}; }), 0);
  Check(calls_->SynchronizeStream(first_));
  EXPECT_DEATH(device[0] = std::byte{1}, "");
}

// ---- Memory that goes while it is used ----

TEST_P(EmulatedCudaCallsTest, UnmappingUnderACopy) {
  std::byte* device = MapOne();
  Check(Up(device, first_));
  Check(calls_->Unmap(device, kSlot));  // found, even if the copy is over
  ExpectMisuse(
      "64.0 KiB of memory are unmapped although nobody waited for work 1 (copy of 64.0 "
      "KiB to the device) on stream 1, which uses it");
}

TEST_P(EmulatedCudaCallsTest, UnmappingUnderAKernelThatRan) {
  std::byte* device = MapOne();
  ASSERT_EQ(Launch(first_, [=] { device[1] = std::byte{1}; }), 0);
  while (calls_->works() == 0) std::this_thread::yield();
  ASSERT_EQ(Launch(second_, [] {}), 0);  // kernels run one after the other
  while (calls_->works() < 2) std::this_thread::yield();
  Check(calls_->Unmap(device, kSlot));
  ExpectMisuse("are unmapped although nobody waited for work 1 (kernel Test) on stream 1");
}

TEST_P(EmulatedCudaCallsTest, UnmappingAfterTheHostHasWaited) {
  std::byte* device = MapOne();
  Check(Up(device, first_));
  const CudaEvent event = MakeEvent();
  Check(calls_->RecordEvent(event, first_));
  Check(calls_->SynchronizeEvent(event));
  Check(calls_->Unmap(device, kSlot));
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, FreeingUnderACopy) {
  std::byte* device = nullptr;
  Check(calls_->Allocate(kSlot, &device));
  Check(Down(device, second_));
  Check(calls_->Free(device));
  ExpectMisuse("memory is freed although nobody waited for work 1");
}

TEST_P(EmulatedCudaCallsTest, UnregisteringUnderACopy) {
  std::byte* device = MapOne();
  Check(Up(device, first_));
  Check(calls_->UnregisterHost(host_memory_));
  ExpectMisuse("host memory is unregistered although nobody waited for work 1");
}

// ---- Races ----

TEST_P(EmulatedCudaCallsTest, TwoStreamsThatWriteOneMemory) {
  std::byte* device = MapOne();
  Check(Up(device, first_));
  Check(calls_->SynchronizeEvent([&] {
    const CudaEvent event = MakeEvent();
    Check(calls_->RecordEvent(event, second_));  // the wrong stream
    return event;
  }()));
  Check(calls_->FillWithZeros(device + 8, Bytes(8), second_));
  ExpectMisuse(
      "no order between work 3 (filling of 8 B with zeros) on stream 2 and work 1 (copy "
      "of 64.0 KiB to the device) on stream 1");
}

TEST_P(EmulatedCudaCallsTest, AKernelAndACopyThroughAnotherAddress) {
  std::byte* addresses = Reserve(2);
  const CudaPhysicalMemory memory = MakePhysical();
  Check(calls_->Map(addresses, kSlot, memory));
  Check(calls_->Map(addresses + kSlot.count(), kSlot, memory));
  Check(calls_->SetAccess(0, addresses, kSlot * 2));
  ASSERT_EQ(Launch(first_, [=] { addresses[5000] = std::byte{1}; }), 0);
  Check(Down(addresses + kSlot.count(), second_));
  ExpectMisuse("(kernel Test) on stream 1");
}

TEST_P(EmulatedCudaCallsTest, AKernelsReadAndACopysWrite) {
  std::byte* device = MapOne();
  Check(calls_->FillWithZeros(device, kSlot, first_));
  ASSERT_EQ(Launch(first_,
                   [=] {
                     GANTRY_CHECK(device[5000] != std::byte{3});
                     device[0] = std::byte{1};
                   }),
            0);
  Order(first_, second_);
  ASSERT_EQ(Launch(first_, [=] { device[0] = device[9000]; }), 0);  // behind the event
  Check(calls_->SynchronizeStream(first_));
  EXPECT_THAT(calls_->misuse(), IsOk());
  calls_->Hold();
  ASSERT_EQ(Launch(first_, [=] { device[0] = device[9000]; }), 0);
  Check(Up(device + 8192, second_, Bytes(4096)));
  calls_->Resume();
  ExpectMisuse("both touch bytes 8192 to 12288 of one physical memory");
}

TEST_P(EmulatedCudaCallsTest, CopiesThatShareHostMemory) {
  std::byte* one = MapOne();
  std::byte* two = MapOne();
  Check(Up(one, first_));
  Check(Down(two, second_));
  ExpectMisuse("of host memory, one of them writes");
}

// ---- Handles and arguments ----

TEST_P(EmulatedCudaCallsTest, EventsThatWereNeverRecorded) {
  const CudaEvent event = MakeEvent();
  Check(calls_->WaitEvent(first_, event));
  ExpectMisuse("stream 1 waits for an event that was never recorded");
  Create({});
  Check(calls_->SynchronizeEvent(MakeEvent()));
  ExpectMisuse("an event is waited for that was never recorded");
  Create({});
  Check(calls_->QueryEvent(MakeEvent()));
  ExpectMisuse("an event is asked for that was never recorded");
}

TEST_P(EmulatedCudaCallsTest, TimesOfEventsWithoutTiming) {
  const CudaEvent event = MakeEvent();
  Check(calls_->RecordEvent(event, first_));
  float milliseconds = 0;
  EXPECT_EQ(calls_->ElapsedTime(event, event, &milliseconds), CudaError::kInvalidHandle);
  ExpectMisuse("an event without timing");
}

TEST_P(EmulatedCudaCallsTest, HandlesThatAreNoneOrGone) {
  const CudaEvent event = MakeEvent();
  Check(calls_->DestroyEvent(event));
  EXPECT_EQ(calls_->DestroyEvent(event), CudaError::kInvalidHandle);
  ExpectMisuse("the destruction of an event with an event that is none, or was destroyed");
  Create({});
  EXPECT_EQ(calls_->RecordEvent({.value = first_}, first_), CudaError::kInvalidHandle);
  ExpectMisuse("a recording with an event that is none");
  Create({});
  EXPECT_EQ(calls_->SynchronizeStream(host_memory_), CudaError::kInvalidHandle);
  ExpectMisuse("waiting on a stream that is none");
  Create({});
  const CudaStream stream = MakeStream();
  Check(calls_->DestroyStream(stream));
  EXPECT_EQ(calls_->DestroyStream(stream), CudaError::kInvalidHandle);
  EXPECT_EQ(Launch(stream, [] {}), static_cast<int>(CudaError::kInvalidHandle));
  ExpectMisuse("the destruction of a stream on a stream that was destroyed");
}

TEST_P(EmulatedCudaCallsTest, EventsOfAnotherDevice) {
  Create({.devices = 2});
  Check(calls_->SetDevice(1));
  const CudaEvent event = MakeEvent();
  EXPECT_EQ(calls_->RecordEvent(event, first_), CudaError::kInvalidHandle);
  ExpectMisuse("an event of device 1 is recorded on a stream of device 0");
}

TEST_P(EmulatedCudaCallsTest, StreamsOfAnotherDeviceThanTheThreads) {
  Create({.devices = 2});
  std::byte* device = MapOne();
  Check(calls_->SetDevice(1));
  EXPECT_EQ(Launch(first_, [] {}), static_cast<int>(CudaError::kInvalidHandle));
  EXPECT_EQ(calls_->FillWithZeros(device, kSlot, first_), CudaError::kInvalidHandle);
  Check(Up(device, first_));  // copies do not mind
  ExpectMisuse("kernel Test on a stream of device 0 by a thread whose device is 1");
}

TEST_P(EmulatedCudaCallsTest, SizesThatAreNoMultiples) {
  CudaPhysicalMemory memory;
  std::byte* address = nullptr;
  EXPECT_EQ(calls_->CreatePhysical(0, kSlot + 4_KiB, &memory), CudaError::kInvalidValue);
  ExpectMisuse("physical memory of 69632 bytes: no positive multiple of 65536");
  EXPECT_EQ(calls_->CreatePhysical(0, Bytes(0), &memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->ReserveAddresses(Bytes(1), &address), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->ReserveAddresses(Bytes(0), &address), CudaError::kInvalidValue);
}

TEST_P(EmulatedCudaCallsTest, MappingsThatDoNotFit) {
  std::byte* address = Reserve(2);
  const CudaPhysicalMemory memory = MakePhysical();
  EXPECT_EQ(calls_->Map(address + 4096, kSlot, memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Map(address + kSlot.count(), kSlot * 2, memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Map(address, kSlot * 2, memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Map(host_memory_, kSlot, memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Map(address, kSlot, {.value = 99}), CudaError::kInvalidValue);
  Check(calls_->Map(address, kSlot, memory));
  EXPECT_EQ(calls_->Map(address, kSlot, memory), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->SetAccess(0, address, kSlot * 2), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Unmap(address + kSlot.count(), kSlot), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Unmap(address, kSlot * 2), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->FreeAddresses(address, kSlot * 2), CudaError::kInvalidValue);  // in use
  Check(calls_->Unmap(address, kSlot));
  EXPECT_EQ(calls_->FreeAddresses(address, kSlot), CudaError::kInvalidValue);
  Check(calls_->FreeAddresses(address, kSlot * 2));
  EXPECT_EQ(calls_->FreeAddresses(address, kSlot * 2), CudaError::kInvalidValue);
  EXPECT_EQ(calls_->Map(address, kSlot, memory), CudaError::kInvalidValue);
  Check(calls_->ReleasePhysical(memory));
  EXPECT_EQ(calls_->ReleasePhysical(memory), CudaError::kInvalidValue);
  EXPECT_THAT(calls_->misuse(), StatusIs(absl::StatusCode::kInternal, "the first misuse of 14)"));
}

TEST_P(EmulatedCudaCallsTest, FreedAndRegisteredTwice) {
  std::byte* device = nullptr;
  Check(calls_->Allocate(kSlot, &device));
  Check(calls_->Free(device));
  EXPECT_EQ(calls_->Free(device), CudaError::kInvalidValue);
  ExpectMisuse("memory is freed that is not allocated: byte 0 of a range of 65536");
  EXPECT_EQ(calls_->Free(MapOne()), CudaError::kInvalidValue);  // of another kind
  EXPECT_EQ(calls_->RegisterHost(host_memory_ + 4096, kSlot), CudaError::kInvalidValue);
  Check(calls_->UnregisterHost(host_memory_));
  EXPECT_EQ(calls_->UnregisterHost(host_memory_), CudaError::kInvalidValue);
}

TEST_P(EmulatedCudaCallsTest, WaitingForWorkThatIsHeld) {
  std::byte* device = MapOne();
  calls_->Hold();
  Check(Up(device, first_));
  EXPECT_EQ(calls_->SynchronizeStream(first_), CudaError::kUnknown);
  calls_->Resume();
  ExpectMisuse("SynchronizeStream waits for work that is held");
}

// ---- Failures on demand ----

TEST_P(EmulatedCudaCallsTest, OneCallFails) {
  Create({.failing_call = 3, .call_error = CudaError::kOutOfMemory});
  std::byte* address = nullptr;
  EXPECT_EQ(calls_->ReserveAddresses(kSlot, &address), CudaError::kOutOfMemory);
  EXPECT_EQ(calls_->ReserveAddresses(kSlot, &address), CudaError::kNone);
  EXPECT_THAT(calls_->misuse(), IsOk());
}

TEST_P(EmulatedCudaCallsTest, OnePieceOfWorkFailsAndTheDeviceWithIt) {
  Create({.seed = GetParam(), .failing_work = 1, .work_error = CudaError::kUncorrectableMemory});
  std::byte* device = MapOne();
  Check(Up(device, first_));
  Check(calls_->SynchronizeStream(first_));
  Check(Down(device, first_));
  EXPECT_EQ(calls_->SynchronizeStream(first_), CudaError::kUncorrectableMemory);
  EXPECT_EQ(Down(device, second_), CudaError::kUncorrectableMemory);
  CudaMemoryInfo info;
  EXPECT_EQ(calls_->MemoryInfo(&info), CudaError::kUncorrectableMemory);
}

}  // namespace
}  // namespace gantry
