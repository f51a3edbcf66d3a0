// Package transportpb is the wire form of the contract: the messages and the
// service of transport.proto, as generated code. Nothing in it is written by hand
// but this file; package plugins converts to and from package framework.
//
// The generated files are committed, so that a build needs no protoc. Regenerate
// them with protoc 3.21 or later and the two plugins of the pinned versions that
// the headers of the generated files name:
//
//	plugins/proto/generate.sh
package transportpb

//go:generate ./generate.sh
