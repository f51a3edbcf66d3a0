package session

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// calls are the calls beside "program": each makes one call of package dsl.
//
//	rank, input, output                   rank                        → nothing, chunks
//	scratch                               rank size                   → the first chunk
//	scratch_chunks                        rank                        → chunks so far
//	slice                                 rank buffer offset size start stop  → chunk
//	group, barrier                        list (rank)                 → handle, nothing
//	semaphore                             rank initial_value          → handle, id
//	acquire, release                      handle tb data_sync
//	memory_channel, port_channel          dst_rank src_rank           → handle, id
//	memory_*, port_*                      handle and what the operation takes
//	switch_channel                        list buffer                 → handle, ids
//	switch_at                             handle rank
//	switch_reduce, switch_broadcast(_packets)   handle rank offset size dst or src, tb
//	begin_loop, end_loop                  unit num_chunks
//	compile                                                           → the plan
var calls = map[string]func(*Session, *Request) (any, error){
	"rank":                           func(s *Session, r *Request) (any, error) { s.p.Rank(r.Rank); return nil, nil },
	"input":                          func(s *Session, r *Request) (any, error) { return s.p.Input(r.Rank).Size, nil },
	"output":                         func(s *Session, r *Request) (any, error) { return s.p.Output(r.Rank).Size, nil },
	"scratch":                        func(s *Session, r *Request) (any, error) { return s.p.Scratch(r.Rank, r.Size).Offset, nil },
	"scratch_chunks":                 func(s *Session, r *Request) (any, error) { return s.p.ScratchChunks(r.Rank), nil },
	"slice":                          slice,
	"group":                          group,
	"barrier":                        func(s *Session, r *Request) (any, error) { s.p.Rank(r.Rank).Barrier(r.List...); return nil, nil },
	"copy":                           copying(dsl.Rank.Copy),
	"copy_packets":                   copying(dsl.Rank.CopyPackets),
	"unpack_packets":                 copying(dsl.Rank.UnpackPackets),
	"reduce":                         reduce,
	"semaphore":                      semaphore,
	"acquire":                        counting(dsl.Semaphore.Acquire),
	"release":                        counting(dsl.Semaphore.Release),
	"begin_loop":                     func(s *Session, r *Request) (any, error) { s.p.BeginLoop(r.Unit, r.Chunks); return nil, nil },
	"end_loop":                       func(s *Session, _ *Request) (any, error) { s.p.EndLoop(); return nil, nil },
	"memory_channel":                 memoryChannel,
	"memory_signal":                  ordering(memories, dsl.MemoryChannel.Signal),
	"memory_wait":                    ordering(memories, dsl.MemoryChannel.Wait),
	"memory_put":                     moving(memories, dsl.MemoryChannel.Put),
	"memory_get":                     moving(memories, dsl.MemoryChannel.Get),
	"memory_put_packets":             moving(memories, dsl.MemoryChannel.PutPackets),
	"memory_read_put_packets":        moving(memories, dsl.MemoryChannel.ReadPutPackets),
	"memory_reduce":                  memoryReduce,
	"port_channel":                   portChannel,
	"port_signal":                    ordering(ports, dsl.PortChannel.Signal),
	"port_wait":                      ordering(ports, dsl.PortChannel.Wait),
	"port_flush":                     ordering(ports, dsl.PortChannel.Flush),
	"port_put":                       requesting(dsl.PortChannel.Put),
	"port_put_with_signal":           requesting(dsl.PortChannel.PutWithSignal),
	"port_put_with_signal_and_flush": requesting(dsl.PortChannel.PutWithSignalAndFlush),
	"port_put_packets":               requesting(dsl.PortChannel.PutPackets),
	"port_read_put_packets":          moving(ports, dsl.PortChannel.ReadPutPackets),
	"switch_channel":                 switchChannel,
	"switch_at":                      func(s *Session, r *Request) (any, error) { _, err := s.view(r); return nil, err },
	"switch_reduce":                  switchReduce,
	"switch_broadcast":               broadcasting(dsl.SwitchView.Broadcast),
	"switch_broadcast_packets":       broadcasting(dsl.SwitchView.BroadcastPackets),
	"compile":                        compile,
}
