# frozen_string_literal: true

# Parks in nested calls of many shapes. Before each moment it writes its threads' backtraces to a file:
# "T TID" and one "F path<TAB>line<TAB>label" for each frame, innermost first. The last thread is the
# one that parks, without the call in which it waits; "R" begins the frames of the Fiber that resumed
# its Fiber. It prints "parked N" and goes on with the next line of its input.
# Arguments: the number of moments, the seed, the file.

MOMENTS = Integer(ARGV[0] || 10)
RANDOM = Random.new(Integer(ARGV[1] || 1))
FILE = ARGV[2]
PARKED = [0]
$stdout.sync = true

def line(l) = "F #{l.path}\t#{l.lineno}\t#{l.label}\n"

def park(fiber = nil)
  text = +""
  Thread.list.each do |t|
    next if t == Thread.current
    next unless (places = t.backtrace_locations)
    text << "T #{t.native_thread_id}\n" << places.map { |l| line(l) }.join
  end
  text << "T #{Thread.current.native_thread_id}\n"
  # What waits in the next line has the number of the line that made the backtrace.
  File.write(FILE, text + caller_locations(0).map { |l| line(l) }.join + (fiber ? "R\n#{fiber}" : "")); puts "parked #{PARKED[0] += 1}"; $stdin.gets; 0
end

module Loud
  refine String do
    def shout(&block) = block.call(upcase)
  end
end
using Loud

module Mixed
  def mixed(n)
    down(n)
  end
end

class Base
  def over(n) = down(n)
  def down(n) = Shapes.step(n)
end

class Deep < Base
  include Mixed

  def over(n)
    super
  end

  def method_missing(name, n = 0)
    return super unless name == :missing

    down(n)
  end

  def respond_to_missing?(*) = true

  define_method(:defined) { |n| down(n) }

  class << self
    def single(n) = Deep.new.down(n)
  end

  def initialize(n = nil)
    down(n) if n
  end

  def each
    yield 1
    yield 2
  end
  include Enumerable

  def <=>(_other) = 0
  def +(other) = down(other)
  def to_s = "deep"
  private def hidden(n) = down(n)
end

OBJECT = Object.new
def OBJECT.alone(n) = Shapes.step(n)
ANONYMOUS = Class.new do
  def inside(n) = Shapes.step(n)
end
LAMBDA = lambda { |n| Shapes.step(n) }
PROC = proc do |n|
  [n].each do |x|
    [x].map { |y| Shapes.step(y) }
  end
end
Struct.new("Held", :n) do
  def go = Shapes.step(n)
end
eval("def evaluated(n)\n\n  Shapes.step(n)\nend", binding, "made/up.rb", 40)
class_eval = Deep.class_eval("def texted(n) = down(n)\nself", "other.rb", 7)
raise unless class_eval == Deep
alias renamed evaluated

module Shapes
  module_function

  def step(n)
    return park if n <= 0

    send(:"shape#{RANDOM.rand(COUNT)}", n - 1)
    0
  end

  def shape0(n) = [1].each { |_| step(n) }

  def shape1(n)
    1.times do
      {a: 1}.each do |_, _|
        step(n)
      end
    end
  end

  def shape2(n) = LAMBDA.call(n)
  def shape3(n) = PROC.(n)
  def shape4(n) = Deep.new.over(n)
  def shape5(n) = Deep.new.mixed(n)
  def shape6(n) = Deep.new.missing(n)
  def shape7(n) = Deep.new.defined(n)
  def shape8(n) = Deep.single(n)
  def shape9(n) = Deep.new(n)
  def shape10(n) = OBJECT.alone(n)
  def shape11(n) = ANONYMOUS.new.inside(n)

  def shape12(n)
    raise "wrong"
  rescue RuntimeError
    step(n)
  end

  def shape13(n)
    n + 1
  ensure
    step(n)
  end

  def shape14(n)
    begin
      Integer("x")
    rescue ArgumentError => e
      begin
        raise TypeError, e.message
      rescue TypeError
        [n].each { |x| step(x) }
      ensure
        n
      end
    end
  end

  def shape15(n) = Object.new.send(:evaluated, n)
  def shape16(n) = Deep.new.texted(n)
  def shape17(n) = eval("[n].each { |x|\n step(x) }", binding, "inner.rb", 100)
  def shape18(n) = instance_eval { step(n) }
  def shape19(n) = "word".shout { |_| step(n) }
  def shape20(n) = [3, 1].sort_by { |x| x == 3 ? step(n) || 0 : 1 }
  def shape21(n) = [n].map(&method(:step))
  def shape22(n) = catch(:done) { step(n) }
  def shape23(n) = Deep.new.map { |x| x == 1 ? step(n) : x }
  def shape24(n) = Deep.new.each_with_index { |x, i| step(n) if i == 0 }
  def shape25(n) = Struct::Held.new(n).go
  def shape26(n) = Deep.new.then { |d| d + n }
  def shape27(n) = Object.new.send(:renamed, n)
  def shape28(n) = Deep.new.send(:hidden, n)
  def shape29(n) = loop { step(n); break }
  def shape30(n) = (n.zero? ? step(n) : shape30(n - 1))
  def shape31(n) = 1.upto(1) { |_| step(n) }
  def shape32(n) = 5.tap { step(n) }
  def shape33(n) = [[1, 2]].each_slice(1).with_index { |_, i| step(n) if i.zero? }
  def shape34(n) = Hash.new { |h, k| h[k] = step(n) || 0 }[:absent]
  def shape35(n) = "ab".gsub(/a/) { step(n); "b" }
  def shape36(n) = Mutex.new.synchronize { step(n) }
  def shape37(n) = [1].inject(0) { |a, _| step(n); a }
  def shape38(n) = Class.new(Base) { Shapes.step(n) }
  def shape39(n) = [1, 2].lazy.map { |x| x == 1 ? step(n) : x }.first(1)

  def shape40(n)
    keep = binding # its environment moves to the heap
    step(n)
    keep.local_variables
  end

  def shape41(n)
    made = proc { |x| step(x) }
    [n].each(&made)
  end

  def shape42(n) = Comparable.instance_method(:clamp).bind_call(n, n, n).then { step(n) }
  def shape43(n) = ObjectSpace.each_object(Class).first(1).each { step(n) }
  def shape44(n) = Kernel.public_send(:then) { step(n) }
  def shape45(n) = define_singleton_method(:late) { |x| step(x) }.then { late(n) }

  # A long method: its table of lines has several blocks.
  def shape46(n)
    x = [n]
    x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]
    x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]; x += [1, 2, 3]
    # A comment.
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    i = h + f
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    j = h + f
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    k = h + f

    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    l = h + f
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    m = h + f
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    step(n)
    a = x.size; b = a * 2; c = b + a; d = c - b; e = d * a; f = e + c; g = f - d; h = g * e
    [i, j, k, l, m, h, g]
  end

  COUNT = 47
end

# Parks in a Fiber; the frames of the one that resumed it are printed too.
def in_fiber(n)
  outer = nil
  fiber = Fiber.new { nested(n) { park(outer) } }
  outer = "#{caller_locations(0).map { |l| line(l) }.join}"; fiber.resume
end

def nested(n, &block) = n <= 0 ? block.call : nested(n - 1, &block)

# Parks in an Enumerator that is used from outside.
def outside(n)
  e = Enumerator.new do |y|
    nested(n) { park }
    y << 1
  end
  e.next
end

# Threads that wait in different calls.
LOCK = Mutex.new
LOCK.lock
QUEUE = Queue.new
READ, WRITE = IO.pipe
VARIABLE = ConditionVariable.new
waiting = [
  Thread.new { sleep },
  Thread.new { nested(3) { sleep 1_000_000 } },
  Thread.new { LOCK.synchronize { 1 } },
  Thread.new { [1].each { QUEUE.pop } },
  Thread.new { READ.read(1) },
  Thread.new { Mutex.new.then { |m| m.synchronize { VARIABLE.wait(m) } } },
  Thread.new { IO.select([READ]) },
  Thread.new { Fiber.new { nested(2) { sleep } }.resume },
  Thread.new(&QUEUE.method(:pop)),
  Thread.new { Thread.new { sleep }.join },
]
Thread.pass until waiting.all? { |t| t.status == "sleep" }
sleep 0.01 until (Thread.list - [Thread.current]).all? { |t| t.stop? && t.backtrace_locations&.any? }

begin
  MOMENTS.times do |i|
    case i % 20
    when 7 then in_fiber(RANDOM.rand(5))
    when 13 then outside(RANDOM.rand(5))
    when 17 then nested(RANDOM.rand(300)) { Shapes.step(3) }
    else Shapes.step(RANDOM.rand(1..12))
    end
  end
end
