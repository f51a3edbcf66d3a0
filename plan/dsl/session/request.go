package session

import (
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

// Request is a call. Each takes a few of the fields; the table of calls says which.
type Request struct {
	Call string `json:"call"`
	Settings
	Handle int   `json:"handle,omitempty"` // the channel, semaphore or group
	Rank   int   `json:"rank,omitempty"`
	DstTo  int   `json:"dst_rank,omitempty"`
	SrcOf  int   `json:"src_rank,omitempty"`
	List   []int `json:"list,omitempty"` // ranks of a switch, blocks of a barrier or group
	Range
	Value  int     `json:"initial_value,omitempty"`
	Dst    *Chunk  `json:"dst,omitempty"`
	Src    *Chunk  `json:"src,omitempty"`
	Others []Chunk `json:"others,omitempty"`
	Reduce string  `json:"reduce_op,omitempty"`
	Packet bool    `json:"packet,omitempty"`
	Block  *int    `json:"tb,omitempty"`
	Group  *int    `json:"tb_group,omitempty"`
	Sync   string  `json:"data_sync,omitempty"` // none, before, after or both, which is the default
	Relax  bool    `json:"relaxed,omitempty"`
}

// Settings are the fields of "program". One that is left out has its default.
type Settings struct {
	Name        string     `json:"name,omitempty"`
	Collective  Collective `json:"collective,omitzero"`
	Ranks       int        `json:"num_ranks,omitempty"`
	Instances   *int       `json:"instances,omitempty"`
	Protocol    string     `json:"protocol,omitempty"`
	Fusion      *bool      `json:"instr_fusion,omitempty"`
	AutoSync    *bool      `json:"auto_sync,omitempty"`
	Replication string     `json:"replication_policy,omitempty"` // interleaved or none
	Reuse       bool       `json:"reuse_resources,omitempty"`
	Threads     int        `json:"num_threads_per_block,omitempty"`
	Double      bool       `json:"use_double_scratch_buffer,omitempty"`
	Alignment   int        `json:"buffer_alignment,omitempty"`
	MinSize     uint64     `json:"min_message_size,omitempty"`
	MaxSize     uint64     `json:"max_message_size,omitempty"`
	Corrected   bool       `json:"corrected,omitempty"` // without the mistakes of the reference compiler
}

// Range is a part of a buffer, and what a loop runs over.
type Range struct {
	Buffer string `json:"buffer,omitempty"` // i, o or s
	Start  int    `json:"start,omitempty"`
	Stop   int    `json:"stop,omitempty"`
	Offset int    `json:"offset,omitempty"`
	Size   int    `json:"size,omitempty"`
	Unit   int    `json:"unit,omitempty"`
	Chunks int    `json:"num_chunks,omitempty"`
}

// Collective has the number of chunks of each rank's buffers.
type Collective struct {
	Name    string `json:"name"`
	InPlace bool   `json:"inplace,omitempty"`
	Inputs  []int  `json:"inputs"`
	Outputs []int  `json:"outputs"`
}

// Chunk is written [rank, "i" or "o" or "s", index, size].
type Chunk dsl.Chunk

// UnmarshalJSON reads a chunk.
func (c *Chunk) UnmarshalJSON(b []byte) error {
	var typ string
	fields := []any{&c.Rank, &typ, &c.Index, &c.Size}
	given := len(fields)
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	if len(fields) != given {
		return fmt.Errorf("a chunk has %d fields, not %d", given, len(fields))
	}
	switch c.Type = dsl.BufferType(typ); c.Type {
	case dsl.InputBuffer, dsl.OutputBuffer, dsl.ScratchBuffer:
		return nil
	}
	return fmt.Errorf("no buffer type %q: expected i, o or s", typ)
}

// MarshalJSON writes a chunk.
func (c Chunk) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{c.Rank, c.Type, c.Index, c.Size})
}

func (r *Request) sync() (dsl.Sync, error) {
	relaxed := dsl.Sync(0)
	if r.Relax {
		relaxed = dsl.Relaxed
	}
	switch r.Sync {
	case "none":
		return dsl.None | relaxed, nil
	case "before":
		return dsl.Before | relaxed, nil
	case "after":
		return dsl.After | relaxed, nil
	case "both", "":
		return dsl.Both | relaxed, nil
	}
	return 0, &dsl.Error{Kind: dsl.ValueError, Text: fmt.Sprintf("no data_sync %q: expected none, before, after or both", r.Sync)}
}

func (r *Request) reduce() (dsl.ReduceOp, error) {
	switch o := dsl.ReduceOp(r.Reduce); o {
	case "":
		return dsl.Sum, nil
	case dsl.Sum, dsl.Min, dsl.Max:
		return o, nil
	}
	return "", &dsl.Error{Kind: dsl.ValueError, Text: fmt.Sprintf("no reduce_op %q: expected sum, min or max", r.Reduce)}
}

func (r *Request) bufferType() (dsl.BufferType, error) {
	switch t := dsl.BufferType(r.Buffer); t {
	case dsl.InputBuffer, dsl.OutputBuffer, dsl.ScratchBuffer:
		return t, nil
	}
	return "", &dsl.Error{Kind: dsl.ValueError, Text: fmt.Sprintf("no buffer type %q: expected i, o or s", r.Buffer)}
}

func (r *Request) chunks() (dst, src dsl.Chunk, err error) {
	if r.Dst == nil || r.Src == nil {
		return dst, src, &dsl.Error{Kind: dsl.TypeError, Text: r.Call + " needs dst and src"}
	}
	return dsl.Chunk(*r.Dst), dsl.Chunk(*r.Src), nil
}

func (r *Request) others() []dsl.Chunk {
	var out []dsl.Chunk
	for _, c := range r.Others {
		out = append(out, dsl.Chunk(c))
	}
	return out
}

func (r *Request) block() (int, error) {
	if r.Block == nil {
		return 0, &dsl.Error{Kind: dsl.TypeError, Text: r.Call + " needs tb"}
	}
	return *r.Block, nil
}

func (s *Session) on(r *Request) (dsl.On, error) {
	if r.Group == nil {
		if r.Block == nil {
			return dsl.On{}, nil
		}
		return dsl.Block(*r.Block), nil
	}
	g, err := pick(s.groups, *r.Group, "thread block group")
	switch {
	case err != nil:
		return dsl.On{}, err
	case r.Block != nil:
		return dsl.Slice(g, *r.Block), nil
	}
	return dsl.Blocks(g), nil
}
