// Package gpus is the GPUs of one machine, for the processes of a job that has none: they connect, bring memory as descriptors and
// kernels as code objects, and launch. One interpreter executes the kernels of all processes, by one schedule, under one model of
// the caches, so that what a process stores reaches the others as it would between GPUs.
//
// The emulated runtime of package framework/device/hip/emulated is its client. wire.go has the messages between the two.
package gpus
