// Package session drives the language for execution plans by messages, for front ends in other languages: one message for
// each call of a program, with channels and groups as numbers, and mistakes as kind and text.
//
// A message is a JSON object: field "call" names the call and the others are the fields of Request that it takes. The
// answer has either "value" or "error" with "kind" and "text". A mistake ends with its answer: the front end raises it,
// and its program may go on. The first call is "program"; "compile" gives the plan and may come more than once.
package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

// Answer is what Call returns.
type Answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error *Fault          `json:"error,omitempty"`
}

// Fault is a mistake: Kind is the name of the exception that the reference raises for it.
type Fault struct {
	Kind dsl.Kind `json:"kind"`
	Text string   `json:"text"`
}

// Call does what a message asks for and returns the answer as JSON.
func (s *Session) Call(message []byte) []byte {
	var a Answer
	value, err := s.call(message)
	if err == nil && s.p != nil {
		err = s.p.Err()
	}
	if s.p != nil {
		s.p.Recover()
	}
	if err == nil && value != nil {
		a.Value, err = json.Marshal(value)
	}
	if err != nil {
		a = Answer{Error: fault(err)}
	}
	out, err := json.Marshal(a)
	if err != nil { // a value that was just made, or two texts
		panic(err)
	}
	return out
}

func fault(err error) *Fault {
	var e *dsl.Error
	if errors.As(err, &e) {
		return &Fault{Kind: e.Kind, Text: e.Text}
	}
	return &Fault{Kind: dsl.RuntimeError, Text: err.Error()}
}

func (s *Session) call(message []byte) (any, error) {
	r := Request{}
	d := json.NewDecoder(bytes.NewReader(message))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, &dsl.Error{Kind: dsl.TypeError, Text: "not a call: " + err.Error()}
	}
	if r.Call == "program" {
		return nil, s.begin(&r)
	}
	f, known := calls[r.Call]
	switch {
	case !known:
		return nil, &dsl.Error{Kind: dsl.TypeError, Text: fmt.Sprintf("unknown call %q", r.Call)}
	case s.p == nil:
		return nil, &dsl.Error{Kind: dsl.RuntimeError, Text: "No Program in context"}
	}
	return f(s, &r)
}
