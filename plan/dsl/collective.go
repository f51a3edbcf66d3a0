package dsl

// Collective says what a program computes, and how many chunks the buffers of every rank have.
type Collective struct {
	Name    string
	InPlace bool
	Inputs  []int // chunks of each rank's input
	Outputs []int // chunks of each rank's output
}

// Custom describes buffers of any shape, one entry a rank.
func Custom(name string, inPlace bool, inputs, outputs []int) Collective {
	return Collective{Name: name, InPlace: inPlace, Inputs: inputs, Outputs: outputs}
}

func uniform(name string, ranks, input, output int, inPlace bool) Collective {
	c := Collective{Name: name, InPlace: inPlace}
	for range max(ranks, 0) {
		c.Inputs = append(c.Inputs, input)
		c.Outputs = append(c.Outputs, output)
	}
	return c
}

// AllGather gives every rank the inputs of all; factor is the number of chunks of an input.
func AllGather(ranks, factor int, inPlace bool) Collective {
	return uniform("allgather", ranks, factor, ranks*factor, inPlace)
}

// AllReduce gives every rank the reduction of all inputs; factor is the number of chunks for each rank's part.
func AllReduce(ranks, factor int, inPlace bool) Collective {
	return uniform("allreduce", ranks, ranks*factor, ranks*factor, inPlace)
}

// ReduceScatter gives rank r part r of the reduction of all inputs; factor is the number of chunks of a part.
func ReduceScatter(ranks, factor int, inPlace bool) Collective {
	return uniform("reducescatter", ranks, ranks*factor, factor, inPlace)
}

// AllToAll gives rank r part r of every input; factor is the number of chunks of a part.
func AllToAll(ranks, factor int, inPlace bool) Collective {
	return uniform("alltoall", ranks, ranks*factor, ranks*factor, inPlace)
}

// SendRecv gives each rank the input of one other; factor is the number of chunks of it.
func SendRecv(ranks, factor int, inPlace bool) Collective {
	return uniform("sendrecv", ranks, factor, factor, inPlace)
}

// Test has buffers of the given numbers of chunks and no meaning.
func Test(ranks, input, output int) Collective {
	return uniform("test", ranks, input, output, false)
}
