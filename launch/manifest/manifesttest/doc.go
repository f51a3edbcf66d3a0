// Package manifesttest reads what package manifest prints as Kubernetes would: strictly,
// into the Go types of the projects that define them. It is a module of its own, so that
// nothing else depends on those.
package manifesttest
