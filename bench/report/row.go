// Package report prints the results of a benchmark: a table with the columns of
// nccl-tests for people, JSON lines for programs.
package report

import (
	"encoding/json"
	"io"
)

// Row is one measurement. Its JSON form is one line of output and is stable: fields
// are added, never renamed.
type Row struct {
	Collective string `json:"collective"`
	Bytes      int64  `json:"bytes"` // the larger buffer of the collective, after rounding to whole elements
	Count      int64  `json:"count"` // elements, as the call takes them
	DType      string `json:"dtype"`
	Op         string `json:"op"`   // "none" where nothing is reduced
	Root       int    `json:"root"` // -1 without a root
	Ranks      int    `json:"ranks"`
	Algorithm  string `json:"algorithm"` // the algorithm that ran, also when the selector chose it

	Transport        string `json:"transport"`
	TransportProcess bool   `json:"transport_process"` // served by a process of its own
	TransportSource  string `json:"transport_source"`  // which: "plugin PATH (pid N)", as rank 0 sees it

	Device     string  `json:"device"` // of rank 0: "host", "cuda:0"
	Graph      int     `json:"graph"`  // calls recorded in one graph; 0: launched one by one
	InPlace    bool    `json:"in_place"`
	Registered bool    `json:"registered"`
	Iterations int     `json:"iterations"`
	Calls      int     `json:"calls"` // back to back in an iteration
	TimeUS     float64 `json:"time_us"`
	AlgBW      float64 `json:"algbw_gbps"` // GB/s, 10^9 bytes
	BusBW      float64 `json:"busbw_gbps"`
	Errors     *int64  `json:"errors"` // wrong elements over all ranks; null when not checked

	// The peer library of the comparison, and its version; "" for none. It stands in every row of
	// the run, also where it has no such call and nothing of it was measured.
	Peer       string   `json:"peer"`
	PeerTimeUS *float64 `json:"peer_time_us"` // null: no peer, or it has no such call
	Speedup    *float64 `json:"speedup"`      // the peer's time over ours; null as before
}

// Writer takes the rows of one run in order.
type Writer interface {
	Row(Row) error
	// Close prints what comes after the last row.
	Close() error
}

// JSON writes one object per line.
func JSON(w io.Writer) Writer { return &lines{json.NewEncoder(w)} }

type lines struct{ *json.Encoder }

func (l *lines) Row(r Row) error { return l.Encode(r) }
func (l *lines) Close() error    { return nil }
