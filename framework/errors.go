package framework

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The six classes of error that a caller can act on. They keep their identity
// under errors.Is across the process boundary.
var (
	// ErrUnavailable: possible in principle, but not on this machine or not now.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnsupported: this transport never does it.
	ErrUnsupported = errors.New("unsupported")
	// ErrInvalid: the caller made a mistake.
	ErrInvalid = errors.New("invalid")
	// ErrPeer: another rank failed, died or sent something malformed.
	ErrPeer = errors.New("peer failed")
	// ErrClosed: used after Close or Abort.
	ErrClosed = errors.New("closed")
	// ErrPlugin: the plugin's process is gone or answers with something malformed.
	ErrPlugin = errors.New("plugin gone")
)

// Classes lists the error classes in the order of their wire codes, from 1.
var Classes = []error{ErrUnavailable, ErrUnsupported, ErrInvalid, ErrPeer, ErrClosed, ErrPlugin}

// NoPeer is the value of Error.Peer when the error concerns no particular rank.
const NoPeer = -1

// Error says which operation of which transport failed, and with which peer. It prints
// as "ib-host connect rank 3: no usable device: unavailable".
type Error struct {
	Op        string // "register", "connect", …
	Transport string // "" outside of transports
	Peer      int    // NoPeer if none
	Err       error  // wraps one of the classes
}

// Error implements error.
func (e *Error) Error() string {
	words := make([]string, 0, 4)
	if e.Transport != "" {
		words = append(words, e.Transport)
	}
	if e.Op != "" {
		words = append(words, e.Op)
	}
	if e.Peer != NoPeer {
		words = append(words, "rank", strconv.Itoa(e.Peer))
	}
	if e.Err == nil {
		return strings.Join(words, " ")
	}
	return strings.Join(words, " ") + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OptionError says which option of a transport an error is about. A transport returns it
// for an option whose value it refuses, so that the host can say where the value was set.
// The key does not show in the text: Err names it in its own words.
type OptionError struct {
	Key string // dotted for options in tables, as in configuration
	Err error
}

// BadOption returns the error, of class ErrInvalid, for an option whose value is refused.
// The text has to name the option.
func BadOption(key, format string, args ...any) error {
	return &OptionError{Key: key, Err: fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))}
}

// Error implements error.
func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *OptionError) Unwrap() error { return e.Err }

// Class returns the class of err, or nil if it has none.
func Class(err error) error {
	for _, c := range Classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

// PeerOf returns the rank to which err attributes the failure, or NoPeer.
func PeerOf(err error) int {
	var e *Error
	for errors.As(err, &e) {
		if e.Peer != NoPeer {
			return e.Peer
		}
		err = e.Err
	}
	return NoPeer
}
