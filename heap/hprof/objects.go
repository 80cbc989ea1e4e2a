package hprof

import "io"

// ObjectReader reads objects of a dump, one after another. The dump need not be encoded. It belongs to one
// goroutine.
type ObjectReader interface {
	// Next returns the next instance, array or class, io.EOF after the last. It is valid until the next call.
	// Of Head and Body, which belong to the encoded form, it may have nothing.
	Next() (*Item, error)
	// Refs returns references of the object as IDs, in the order of the dump and with the null ones: those of an
	// instance's fields at once, those of an array's elements in pieces, io.EOF after the last. They are valid until
	// the next call.
	Refs() ([]uint64, error)
	// Chunk returns bytes of the object's fields or elements, as a dump has them, io.EOF after the last. They are
	// valid until the next call.
	Chunk() ([]byte, error)
}

// ReadRefs reads the references of all objects that r has left.
func ReadRefs(r ObjectReader) error {
	for {
		it, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for err == nil && it.Tag != SubPrimitiveArray {
			if _, err = r.Refs(); it.Tag == SubInstance {
				break
			}
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
}
