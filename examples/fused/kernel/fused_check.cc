// The kernels in the checking emulator, with several threads and blocks, tiles of 16 x
// 16, and without tensor cores: it checks which block waits for which. main_test.go
// runs it, also with bugs planted: see --bug below.
#include <mscclpp/check.h>

#define FUSED_TILE 16
#include "fused.cu"

namespace {

using mscclpp::check::Job;

constexpr uint32_t kTile = FUSED_TILE, kInner = 32;

// Small numbers, of which all sums are exact.
float left(uint32_t row, uint32_t l) { return static_cast<float>((row * 7 + l * 3) % 5) - 2; }
float right(uint32_t column, uint32_t l) { return static_cast<float>((column * 5 + l) % 7) - 3; }
float want(uint32_t row, uint32_t column, float scale) {
  float sum = 0;
  for (uint32_t l = 0; l < kInner; ++l) sum += left(row, l) * right(column, l);
  return scale * sum;
}

// The matrices of all ranks.
struct World {
  uint32_t ranks, rows, columns;  // rows: of each rank
  mscclpp::f16 *a[4], *b, *c[4];
  FusedArgs args[4];

  World(Job& job, uint32_t ranks_, uint32_t down, uint32_t across) : ranks(ranks_), rows(down * kTile), columns(across * kTile) {
    b = job.alloc<mscclpp::f16>(columns * kInner);
    for (uint32_t i = 0; i < columns * kInner; ++i) b[i] = mscclpp::from_float<mscclpp::f16>(right(i / kInner, i % kInner));
    for (uint32_t r = 0; r < ranks; ++r) {
      a[r] = job.alloc<mscclpp::f16>(rows * kInner);
      c[r] = job.alloc<mscclpp::f16>(ranks * rows * columns);
      scale(r, 1);
      args[r] = FusedArgs{a[r], b, c[r], job.alloc<uint32_t>(down), r * rows, rows, columns, kInner, 0, {}, {}};
    }
    // As main.go does it: from the rank after this one on.
    for (uint32_t r = 0; r < ranks; ++r) {
      for (uint32_t other = r + 1; other < ranks; ++other) {
        const auto tiles = job.link(r, c[r], other, c[other]), ready = job.link(r, c[r], other, c[other]);
        const uint32_t near = other - r - 1, far = ranks - (other - r) - 1;
        args[r].tiles[near] = tiles.a, args[r].ready[near] = ready.a;
        args[other].tiles[far] = tiles.b, args[other].ready[far] = ready.b;
      }
      args[r].peers = ranks - 1;
    }
  }
  // Gives the rows of a rank new numbers.
  void scale(uint32_t rank, float by) {
    for (uint32_t i = 0; i < rows * kInner; ++i) {
      a[rank][i] = mscclpp::from_float<mscclpp::f16>(by * left(rank * rows + i / kInner, i % kInner));
    }
  }
  // Reads all of C as some threads of a rank.
  void expect(Job& job, uint32_t rank, float by, uint32_t thread, uint32_t threads) const {
    for (uint32_t i = thread; i < ranks * rows * columns; i += threads) {
      const float got = mscclpp::to_float(c[rank][i]), expected = want(i / columns, i % columns, by);
      job.expect(got == expected, "rank %u element (%u, %u): %g, expected %g", rank, i / columns, i % columns,
                 static_cast<double>(got), static_cast<double>(expected));
    }
  }
};

// Several launches of one stream, whose results are read between: one block.
struct Stream {
  Job* job;
  World* world;
  uint32_t rank, rounds;
};

void stream(const Stream* s, const mscclpp::LaunchShape*) {
  const FusedArgs& args = s->world->args[s->rank];
  const uint32_t thread = mscclpp::thread_id();
  for (uint32_t round = 0; round < s->rounds; ++round) {
    const float by = static_cast<float>(round + 1);
    if (thread == 0) s->world->scale(s->rank, by);
    mscclpp::block_sync();
    fused_gemm(&args, nullptr);
    mscclpp::block_sync();
    if (s->job->bug != 1) fused_wait(&args, nullptr);  // bug 1: C is read before the peers' rows are there
    mscclpp::block_sync();
    s->world->expect(*s->job, s->rank, by, thread, mscclpp::block_dim());
    mscclpp::block_sync();
  }
}

void launches_follow_each_other(Job& job) {
  World world(job, 3, 2, 1);
  for (uint32_t r = 0; r < world.ranks; ++r) {
    if (job.bug == 2) {  // no rank waits until its peers have read
      for (uint32_t p = 0; p < 2; ++p) *world.args[r].ready[p].semaphore.inbound = 100;
    }
    job.launch(r, 1, 8, stream, Stream{&job, &world, r, 3});
  }
  job.run();
}

// More rows of tiles than are done together, by several blocks.
void blocks_share_the_tiles(Job& job) {
  World world(job, 2, 9, 2);
  for (uint32_t round = 1; round <= 2; ++round) {
    for (uint32_t r = 0; r < world.ranks; ++r) {
      world.scale(r, static_cast<float>(round));
      job.launch(r, 3 + r, 4, fused_gemm, world.args[r]);
    }
    job.run();
    for (uint32_t r = 0; r < world.ranks; ++r) job.launch(r, 2, 4, fused_wait, world.args[r]);
    job.run();
    for (uint32_t r = 0; r < world.ranks; ++r) {
      world.expect(job, r, static_cast<float>(round), 0, 1);
      for (uint32_t i = 0; i < 9; ++i) job.expect(world.args[r].done[i] == 0, "rank %u: count %u is not reset", r, i);
    }
  }
}

// A rank that never starts: the others leave when the host says so, and report for which
// rank they have waited.
void a_dead_peer_ends_the_wait(Job& job) {
  World world(job, 2, 1, 1);
  mscclpp::WaitControl* const control = job.control(0);
  job.launch(0, 2, 4, fused_gemm, world.args[0]);
  job.beside(0, [control] {
    if (mscclpp::load_relaxed(&control->abort) != 0) return false;
    mscclpp::store_relaxed(&control->abort, 1u);
    return true;
  });
  job.run();
  job.expect(control->reported == 1 && control->peer == 1, "reported %u, peer %u: expected 1 and 1", control->reported, control->peer);
  for (uint32_t i = 0; i < world.columns; ++i) job.expect(world.c[1][i].bits == 0, "element %u of the dead rank was written", i);
}

}  // namespace

MSCCLPP_CHECK_MAIN({"launches follow each other", launches_follow_each_other}, {"blocks share the tiles", blocks_share_the_tiles},
                   {"a dead peer ends the wait", a_dead_peer_ends_the_wait})
