# frozen_string_literal: true

# A busy program in the manner of a web framework: a router, a chain of middlewares in blocks, many
# small methods, templates, callbacks, records made with define_method and method_missing, exceptions
# that are rescued, Enumerators used from outside, and much garbage. Arguments: threads, seconds.

THREADS = Integer(ARGV[0] || 1)
SECONDS = Float(ARGV[1] || 10)

module Callbacks
  def self.included(base) = base.extend(ClassMethods)

  module ClassMethods
    def callbacks = (@callbacks ||= Hash.new { |h, k| h[k] = [] })
    def before(name, &block) = callbacks[name] << block
  end

  def run_callbacks(name)
    self.class.callbacks[name].each { |c| instance_exec(name, &c) }
    yield
  end
end

class Record
  include Callbacks
  ATTRIBUTES = %i[id name email age city tags].freeze
  ATTRIBUTES.each do |a|
    define_method(a) { @attributes[a] }
    define_method(:"#{a}=") { |v| write(a, v) }
  end

  attr_reader :errors

  before(:save) { |_| @saved = validate }
  before(:save) { |n| @log = "#{n} #{id}" }

  def self.build(i) = new(id: i, name: "name #{i}", email: "n#{i}@example.org", age: i % 90, city: "c#{i % 7}", tags: [i, i + 1].map(&:to_s))

  def initialize(**attributes)
    @attributes = attributes
    @errors = []
  end

  def write(name, value)
    @attributes = @attributes.merge(name => value)
  end

  def save
    run_callbacks(:save) { dirty? && persist }
  end

  def dirty? = @attributes.any? { |_, v| !v.nil? }
  def persist = @attributes.to_a.flatten.join(",").hash

  def validate
    @errors.clear
    check(:name) { |v| v.size > 2 }
    check(:age) { |v| v.between?(0, 120) }
    check(:email) { |v| v.match?(/\A[^@]+@[^@]+\z/) }
    @errors.empty?
  end

  def check(name)
    yield(public_send(name)) or @errors << name
  end

  def method_missing(name, *args)
    return @attributes.fetch(name.to_s.delete_suffix("?").to_sym) { raise NoMethodError, name } if name.end_with?("?")

    super
  end

  def respond_to_missing?(name, all = false) = name.end_with?("?") || super
end

class Template
  PARTS = /%\{(\w+)\}/

  def initialize(text) = @text = text
  def render(context) = @text.gsub(PARTS) { escape(context.public_send($1).to_s) }

  def escape(s)
    s.each_char.map { |c| c == "<" ? "&lt;" : c }.join
  end
end

ROW = Template.new("<li>%{id}: %{name}, %{email} (%{age})</li>")

class View
  def initialize(records) = @records = records

  def render
    buffer = +""
    section(buffer, "ul") { @records.each { |r| buffer << row(r) } }
    section(buffer, "p") { buffer << total.to_s }
    buffer
  end

  def section(buffer, tag)
    buffer << "<" << tag << ">"
    yield
  ensure
    buffer << "</" << tag << ">"
  end

  def row(record) = ROW.render(record)
  def total = @records.sum { |r| r.age } + @records.group_by(&:city).transform_values(&:size).values.max
end

class Controller
  def index(params)
    records = Array.new(params[:n]) { |i| Record.build(i + params[:n]) }
    records.each(&:save)
    View.new(sort(records)).render
  end

  def show(params)
    record = Record.build(params[:n])
    [record.name?, record.missing?].join
  rescue NoMethodError, KeyError => e
    "#{e.class}: #{e.message}".size.to_s
  end

  def list(params)
    e = Enumerator.new { |y| params[:n].times { |i| y << fib(i % 9) } }
    (params[:n] / 2).times.map { e.next }.inspect
  end

  def tree(params) = render_tree(grow(params[:n] % 6 + 3)).size.to_s

  private

  def sort(records) = records.sort_by { |r| [r.city, -r.age] }.partition { |r| r.age.odd? }.flatten
  def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
  def grow(depth) = depth.zero? ? [] : [grow(depth - 1), depth.to_s, grow(depth - 2 < 0 ? 0 : depth - 2)]

  def render_tree(node)
    case node
    in [left, String => label, right] then "(#{render_tree(left)}#{label}#{render_tree(right)})"
    in [] then "."
    end
  end
end

class Router
  def initialize
    @routes = {}
    yield self
  end

  def get(path, action) = @routes[path] = action

  def call(env)
    action = @routes.fetch(env[:path]) { throw :halt, [404, "none"] }
    [200, Controller.new.public_send(action, env[:params])]
  end
end

APP = Router.new do |r|
  r.get("/index", :index)
  r.get("/show", :show)
  r.get("/list", :list)
  r.get("/tree", :tree)
end

# Twenty middlewares: each is a lambda in a block of the one before it.
STACK = 20.times.inject(->(env) { APP.call(env) }) do |app, i|
  case i % 4
  when 0 then ->(env) { catch(:halt) { app.call(env) } }
  when 1 then ->(env) { app.call(env.merge(step: i)) }
  when 2
    lambda do |env|
      [env].each_with_index.map { |e, _| app.call(e) }.first
    ensure
      env.frozen?
    end
  else ->(env) { env.then { |e| app.(e) } }
  end
end

def serve(random, count)
  count.times do
    path = %w[/index /show /list /tree /none].sample(random: random)
    status, body = STACK.call({ path: path, params: { n: random.rand(3..25) } })
    raise "wrong" unless status && body
  end
end

def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)

stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
$stdout.sync = true
started = Queue.new
threads = THREADS.times.map do |i|
  Thread.new do
    random = Random.new(i)
    started << i
    serve(random, 5) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
  end
end
THREADS.times { started.pop }
puts "ready"
random = Random.new(99)
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
  serve(random, 3)
  deep(random.rand(100)) { serve(random, 2) }
end
threads.each(&:join)
