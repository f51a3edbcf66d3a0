package choose

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

var f32, sum = kernel.Float32, kernel.Sum

// deviceTable is for two to four GPUs joined as H200s are, and for one alone. Sizes for two
// and four ranks are those at which one algorithm overtook the next on as many H200s, calls
// of float16 in a graph; three ranks take the rows of four. Other numbers of ranks and other
// links have rows that a model makes: see modeled.
//
// Where copy engines take over, kernels would still be as fast up to twice the size. They would
// take multiprocessors from all other work, though.
//
// Chains round partial sums to the type, as other algorithms do not. Partial sums of f32 are of that type everywhere.
var deviceTable = []engine.Row{
	{Collective: collective.AllReduce, MaxBytes: 24 << 10, MaxRanks: 2, Algorithm: "oneshot_ll8"},             // 1 K: 1.50 µs, oneshot_lamport 1.57; 16 K 1.81, 1.84; 64 K 2.10, 2.02
	{Collective: collective.AllReduce, MaxBytes: 1536 << 10, MaxRanks: 2, Algorithm: "oneshot_lamport"},       // 1 M: 4.81 µs, twoshot_ll128 5.84
	{Collective: collective.AllReduce, MinRanks: 3, MaxBytes: 4 << 10, MaxRanks: 4, Algorithm: "oneshot_ll8"}, // on four 1 K: 1.68 µs, oneshot_lamport 1.80; 16 K 2.06, 2.02
	{Collective: collective.AllReduce, MaxBytes: 384 << 10, MaxRanks: 4, Algorithm: "oneshot_lamport"},        // on four 64 K 2.48, oneshot_ll128 3.12; 256 K 4.28, 5.02; 1 M 11.0, twoshot_ll128 8.63
	{Collective: collective.AllReduce, MaxBytes: 32 << 10, MaxRanks: 2, Algorithm: "oneshot_ll8"},             // 64 K: 2.55 µs, oneshot_ll128 2.49
	{Collective: collective.AllReduce, MaxBytes: 16 << 10, MaxRanks: 4, Algorithm: "oneshot_ll8"},
	{Collective: collective.AllReduce, MaxBytes: 768 << 10, MaxRanks: 2, Algorithm: "oneshot_ll128"},              // 1 M: 6.01 µs, twoshot_ll128 5.75
	{Collective: collective.AllReduce, MaxBytes: 384 << 10, MaxRanks: 4, Algorithm: "oneshot_ll128"},              // 256 K on four: 5.26 µs, twoshot_ll128 6.35
	{Collective: collective.AllReduce, MaxBytes: 6 << 20, Algorithm: "twoshot_ll128"},                             // 4 M: 16.7 µs, zerocopy 17.4; on four 24.5, 25.1
	{Collective: collective.AllReduce, MaxBytes: 96 << 20, Registered: &yes, Algorithm: "zerocopy"},               // 64 M: 203 µs, copy 206; 128 M 398, 378
	{Collective: collective.AllReduce, MinRanks: 3, MaxBytes: 192 << 20, Registered: &yes, Algorithm: "zerocopy"}, // on four, when kernels stood between copies: 64 M 319 µs, copy 412; 256 M 1264, 1162
	{Collective: collective.AllReduce, Registered: &yes, Algorithm: Copy},
	{Collective: collective.AllReduce, Registered: &yes, Algorithm: "zerocopy"},                                              // where there are no copies
	{Collective: collective.AllReduce, MinRanks: 3, MaxBytes: 24 << 20, Algorithm: "stream_ll128", Blocks: 96, Threads: 512}, // on four: 16 M 91.7 µs, 72 blocks 104.7, 128 102.7
	{Collective: collective.AllReduce, MaxBytes: 96 << 20, Algorithm: "stream_ll128"},                                        // unregistered: 64 M 213 µs, copy_staged 229; 128 M 414, 409; on four 64 M 326, 372; 256 M 1272, 1168
	{Collective: collective.AllReduce, Algorithm: CopyStaged},                                                                // 256 M: 767 µs, stream_ll128 819; 1 G 2836, 3228
	{Collective: collective.AllReduce, Algorithm: "stream_ll128"},
	{Collective: collective.AllReduce, MaxBytes: 512 << 10, MaxRanks: kernelargs.LLRanks, Algorithm: "oneshot_ll8"}, // where a transport has no lines
	{Collective: collective.AllReduce, MaxBytes: 32 << 10, Algorithm: "allpair_ll8"},
	{Collective: collective.AllReduce, MaxBytes: 512 << 10, Algorithm: "twophase_ll8"},
	{Collective: collective.AllReduce, Algorithm: "twophase_chunk"},

	{Collective: collective.AllGather, MaxBytes: 128 << 10, Algorithm: "direct_ll8"}, // 256 K: 2.90 µs, direct_ll128 2.64; on four 4.21, 3.89
	{Collective: collective.AllGather, MaxBytes: 6 << 20, Algorithm: "direct_ll128"}, // 4 M: 9.06 µs, push 10.4; on four 13.6, 15.3
	{Collective: collective.AllGather, MaxBytes: 96 << 20, Algorithm: "push"},        // 64 M: 98.9 µs; on four 149, copy 161
	{Collective: collective.AllGather, Algorithm: Copy},
	{Collective: collective.AllGather, Algorithm: "push"},
	{Collective: collective.AllGather, MaxBytes: 192 << 20, MaxRanks: 2, Algorithm: "stream_ll128"}, // unregistered: 64 M 106 µs, copy_staged 123; 128 M 206, 212
	{Collective: collective.AllGather, MaxBytes: 128 << 20, Algorithm: "stream_ll128"},              // on four: 64 M 169 µs, copy_staged 187; 256 M 635, 596
	{Collective: collective.AllGather, Algorithm: CopyStaged},                                       // 256 M: 392 µs, shares 393; 1 G 1435, 1503; on four 256 M 596, 624; 1 G 2177, 2360
	{Collective: collective.AllGather, Algorithm: "shares"},
	{Collective: collective.AllGather, Algorithm: "stream_ll128"},
	{Collective: collective.AllGather, MaxBytes: 512 << 10, Algorithm: "ll8"},
	{Collective: collective.AllGather, Algorithm: "chunk"},

	{Collective: collective.ReduceScatter, MaxBytes: 128 << 10, Algorithm: "direct_ll8"}, // 256 K: as fast as direct_ll128
	{Collective: collective.ReduceScatter, MaxBytes: 192 << 10, Algorithm: "direct_ll128"},
	{Collective: collective.ReduceScatter, MaxBytes: 6 << 20, MaxRanks: 4, Algorithm: "direct_lamport"},                                            // 1 M: 3.85 µs, direct_ll128 4.12; 4 M 9.00, 10.4; on four 1 M 5.42, 5.63; 4 M 12.2, 13.7
	{Collective: collective.ReduceScatter, MaxBytes: 6 << 20, Algorithm: "direct_ll128"},                                                           // 4 M: 10.3 µs, zerocopy 12.1
	{Collective: collective.ReduceScatter, MaxBytes: 192 << 20, Registered: &yes, Algorithm: "zerocopy"},                                           // on four, before pieces tapered: 256 M 615 µs, copy 631
	{Collective: collective.ReduceScatter, MaxBytes: 384 << 20, MaxRanks: 2, Registered: &yes, Algorithm: "zerocopy"},                              // 256 M: 408 µs, copy 413; 512 M 808, 782
	{Collective: collective.ReduceScatter, MinRanks: 3, MaxBytes: 24 << 20, Registered: &no, Algorithm: "direct_ll128", Blocks: 112, Threads: 512}, // on four: 16 M 47.5 µs, 72 blocks 52.9, stream_ll128 62.2
	{Collective: collective.ReduceScatter, MinRanks: 3, MaxBytes: 96 << 20, Registered: &no, Algorithm: "stream_ll128"},                            // on four: 64 M 184 µs, copy 192; 256 M 654, 593
	{Collective: collective.ReduceScatter, MaxRanks: 2, MaxBytes: 192 << 20, Registered: &no, Algorithm: "stream_ll128"},                           // 128 M: 222 µs, copy 226; 256 M 429, 413
	{Collective: collective.ReduceScatter, MaxBytes: 512 << 10, Algorithm: "ll8"},                                                                  // where a transport has no lines
	{Collective: collective.ReduceScatter, MaxBytes: 16 << 20, Algorithm: "chunk"},                                                                 // unregistered
	{Collective: collective.ReduceScatter, Algorithm: Copy},                                                                                        // 1 G: 1486 µs, zerocopy 1604
	{Collective: collective.ReduceScatter, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.ReduceScatter, Algorithm: "chunk"},

	{Collective: collective.AllToAll, MaxBytes: 128 << 10, Algorithm: "direct_ll8"},        // 256 K: 2.82 µs, direct_ll128 2.57
	{Collective: collective.AllToAll, MaxBytes: 6 << 20, Algorithm: "direct_ll128"},        // 4 M: 9.46 µs, push 10.8
	{Collective: collective.AllToAll, MaxBytes: 192 << 20, MaxRanks: 2, Algorithm: "push"}, // 128 M: 193 µs, copy 196; 256 M 378, 367
	{Collective: collective.AllToAll, MaxBytes: 96 << 20, Algorithm: "push"},               // 16 M: 30.4 µs; on four 44.4; 64 M 152, copy 166
	{Collective: collective.AllToAll, Algorithm: Copy},                                     // on four: 256 M 551 µs, push 580
	{Collective: collective.AllToAll, Algorithm: "push"},
	{Collective: collective.AllToAll, MaxBytes: 192 << 20, MaxRanks: 2, Algorithm: "stream_ll128"}, // unregistered: 64 M 108 µs, copy_staged 123; 128 M 210, 212
	{Collective: collective.AllToAll, MaxBytes: 128 << 20, Algorithm: "stream_ll128"},              // on four: 64 M 174 µs, copy_staged 189; 256 M 638, 601
	{Collective: collective.AllToAll, Algorithm: CopyStaged},                                       // 256 M: 394 µs, shares 395; 1 G 1437, 1507; on four 256 M 601, 633; 1 G 2170, 2378
	{Collective: collective.AllToAll, Algorithm: "shares"},                                         // in place
	{Collective: collective.AllToAll, Algorithm: "stream_ll128"},
	{Collective: collective.AllToAll, MaxBytes: 512 << 10, Algorithm: "ll8"},
	{Collective: collective.AllToAll, Algorithm: "chunk"},

	{Collective: collective.Broadcast, MaxBytes: 64 << 10, Algorithm: "direct_ll8"},                                          // 256 K: 2.76 µs, direct_ll128 2.48
	{Collective: collective.Broadcast, MaxBytes: 8 << 20, MaxRanks: 2, Algorithm: "direct_ll128"},                            // 1 M: 4.26 µs; 4 M 13.5, push 16.0
	{Collective: collective.Broadcast, MaxBytes: 2 << 20, Algorithm: "direct_ll128"},                                         // on four: 1 M 11.1 µs, stream_ll128 17.5; 4 M 39.7, 24.1
	{Collective: collective.Broadcast, MaxBytes: 96 << 20, MaxRanks: 2, Registered: &yes, Algorithm: "push"},                 // 16 M: 52.3 µs, stream_ll128 54.8; 64 M 186, copy 191; 128 M 369, 361
	{Collective: collective.Broadcast, MinRanks: 3, MaxBytes: 8 << 20, Algorithm: "stream_ll128", Blocks: 48, Threads: 512},  // on four: 4 M 24.2 µs, 128 blocks 27.2
	{Collective: collective.Broadcast, MinRanks: 3, MaxBytes: 32 << 20, Algorithm: "stream_ll128", Blocks: 96, Threads: 512}, // on four: 16 M 72.8 µs, shares 88.0; 64 M 273, 237
	{Collective: collective.Broadcast, MaxRanks: 2, MaxBytes: 48 << 20, Algorithm: "stream_ll128"},                           // unregistered: 16 M 54.8 µs, fetch 56.8
	{Collective: collective.Broadcast, MaxRanks: 2, Registered: &yes, Algorithm: Copy},                                       // 1 G: 2727 µs, fetch 2872
	{Collective: collective.Broadcast, MaxBytes: 384 << 20, Algorithm: "fetch"},                                              // two: 64 M 191 µs, shares 197; 256 M 730, 747
	{Collective: collective.Broadcast, MaxRanks: 2, Algorithm: CopyStaged},                                                   // 256 M: 747 µs; 512 M 1412, fetch 1445; 1 G 2770, 2874
	{Collective: collective.Broadcast, Algorithm: "fetch"},                                                                   // where there are no copies
	{Collective: collective.Broadcast, MinRanks: 3, Algorithm: Chain},                                                        // on four: 64 M 235 µs, shares 237; 256 M 792, 818; 1 G 3020, 3155
	{Collective: collective.Broadcast, MinRanks: 3, Algorithm: "shares"},                                                     // on four: 64 M 237 µs, push 258; 1 G 3108, 3656, stream_ll128 4060
	{Collective: collective.Broadcast, Algorithm: "push"},                                                                    // on four: 64 M 254 µs, stream_ll128 269
	{Collective: collective.Broadcast, Algorithm: "shares"},                                                                  // unregistered: 256 M 752 µs, stream_ll128 791; not measured on four
	{Collective: collective.Broadcast, Algorithm: "stream_ll128"},
	{Collective: collective.Broadcast, Algorithm: "chunk"},

	{Collective: collective.Reduce, MaxBytes: 64 << 10, MaxRanks: 2, Algorithm: "direct_ll8"},
	{Collective: collective.Reduce, MaxBytes: 2 << 20, MaxRanks: 2, Algorithm: "direct_lamport"},                                               // 128 K: 2.08 µs, direct_ll8 2.32; 1 M 3.90, direct_ll128 6.03
	{Collective: collective.Reduce, MaxBytes: 192 << 10, Algorithm: "direct_ll8"},                                                              // two: 128 K 2.32 µs, direct_ll128 2.66; 256 K 2.70, 2.57
	{Collective: collective.Reduce, MaxBytes: 12 << 20, MaxRanks: 2, Algorithm: "direct_ll128"},                                                // 4 M: 13.6 µs, zerocopy 17.3, fetch 22.2; 8 M 25.7, 28.7, 34.0
	{Collective: collective.Reduce, MaxBytes: 512 << 10, Algorithm: "direct_ll128"},                                                            // on four, when sums divided: 64 K 5.59 µs, direct_ll8 3.90; 256 K 5.43, 5.53
	{Collective: collective.Reduce, MinRanks: 3, MaxBytes: 6 << 20, Algorithm: "twoshot_ll128"},                                                // on four: 1 M 9.3 µs, direct_ll128 15.4 to 20; 4 M 23.4, stream_ll128 36.5
	{Collective: collective.Reduce, MinRanks: 3, MaxBytes: 24 << 20, Type: &f32, Op: &sum, Algorithm: "chain_ll128", Blocks: 96, Threads: 512}, // f32 on four H100s, timed alone: 16 M 78.2 µs, stream_ll128 84.1; 64 M 273, chain 247
	{Collective: collective.Reduce, MinRanks: 3, Type: &f32, Op: &sum, Algorithm: Chain},                                                       // f32 on four H100s, timed alone: 64 M 247 µs, shares 264; 256 M 824, 869; 1 G 3056, 3264
	{Collective: collective.Reduce, MinRanks: 3, MaxBytes: 32 << 20, Algorithm: "stream_ll128", Blocks: 48, Threads: 512},                      // on four: 16 M 85.2 µs, shares 95.4 to 102; 64 M 293, 253
	{Collective: collective.Reduce, MinRanks: 3, Algorithm: "shares"},                                                                          // on four: 256 M 849 µs, 1 G 3216
	{Collective: collective.Reduce, MaxBytes: 768 << 20, Registered: &yes, Algorithm: "zerocopy"},                                              // 16 M: 51.8 µs, fetch 56.3, stream_ll128 61.1; 256 M 733, 745
	{Collective: collective.Reduce, MaxBytes: 512 << 20, Algorithm: "fetch"},                                                                   // unregistered: 16 M 56.3 µs, stream_ll128 61.2; 64 M 197, shares 202; 1 G 2930, 2920
	{Collective: collective.Reduce, Algorithm: Copy},                                                                                           // two: 512 M 1464 µs, zerocopy 1457; 1 G 2822, 2895
	{Collective: collective.Reduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.Reduce, Algorithm: "shares"},
	{Collective: collective.Reduce, Algorithm: "stream_ll128"},
	{Collective: collective.Reduce, Algorithm: "chunk"},

	{Collective: collective.Barrier, Algorithm: "signal"},
}
